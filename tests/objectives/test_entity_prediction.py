"""Entity prediction: the published head, the entities of the batch as candidates, and its loss by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from cloze.batch import Batch
from cloze.objectives import EntityPrediction
from cloze.registry import lookup

MATRIX = np.concatenate([np.zeros((1, 4)), np.random.default_rng(0).normal(size=(8, 4))]).astype(np.float32)


def made(width: int = 6, **changed: Any) -> EntityPrediction:
    torch.manual_seed(0)
    tables = {"entities": SimpleNamespace(size=len(MATRIX), matrix=MATRIX)}
    built: EntityPrediction = lookup("objective", "entity_prediction")(width=width, entity_width=4, tables=tables, **changed)
    return built.double()


def asked(targets: list[int], **more: Any) -> Batch:
    fields = {"targets/entity": torch.tensor(targets), "positions/entity": torch.arange(len(targets)) * 2, **more}
    return Batch({"tokens": torch.zeros(2, 5, dtype=torch.long), **fields})


def test_the_published_head_has_77_100_parameters() -> None:
    tables = {"entities": SimpleNamespace(size=9)}
    assert sum(p.numel() for p in EntityPrediction(width=768, tables=tables).parameters()) == 77_100


def test_the_candidates_are_the_entities_of_the_batch_and_the_vector_of_zeros() -> None:
    objective, batch = made(), asked([7, 3, 7])
    assert objective.candidates(batch).tolist() == [0, 3, 7, 7]  # a place that repeats an entity is no candidate
    hidden = torch.randn(2, 5, 6, dtype=torch.double)
    head = objective.head(hidden.flatten(0, 1)[[0, 2, 4]])
    expected = head @ torch.from_numpy(MATRIX[[0, 3, 7]]).double().t()
    scores = objective.scores({"hidden": hidden}, batch)
    torch.testing.assert_close(scores[:, :3], expected)
    assert scores[:, 3].tolist() == [-torch.inf] * 3
    assert scores[:, 0].abs().max() == 0
    loss = objective({"hidden": hidden}, batch)
    torch.testing.assert_close(loss.total, -expected.log_softmax(-1)[[0, 1, 2], [2, 1, 2]].sum())
    assert objective.scope == "batch" and objective.count(batch) == 3


def test_a_batch_without_entities_has_a_loss_of_zero_that_reaches_the_head() -> None:
    objective = made()
    batch = Batch({"targets/entity": torch.zeros(0, dtype=torch.long), "positions/entity": torch.zeros(0, dtype=torch.long)})
    loss = objective({"hidden": torch.randn(1, 3, 6, dtype=torch.double)}, batch).total
    loss.backward()
    assert loss == 0 and all(p.grad is not None and not p.grad.any() for p in objective.parameters())


def test_targets_of_weight_zero_do_not_count() -> None:
    objective, hidden = made(), torch.randn(2, 5, 6, dtype=torch.double)
    weighted = objective({"hidden": hidden}, asked([7, 3], **{"weights/entity": torch.tensor([1.0, 0.0])}))
    scores = objective.scores({"hidden": hidden}, asked([7, 3]))
    torch.testing.assert_close(weighted.total, -scores.log_softmax(-1)[0, 2])
