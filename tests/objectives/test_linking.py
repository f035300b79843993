"""The loss of the linker by hand: which candidates are right, which are asked, and the mean."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

from cloze.batch import Batch
from cloze.objectives import Linking

CANDIDATES = np.array([[0, 0], [1, 2], [3, 0], [5, 0]], np.int32)
TABLES = {"surfaces": SimpleNamespace(size=3, matrix=None, candidates=CANDIDATES, priors=np.ones((4, 2), np.float32))}
SCORES = torch.tensor([0.1, -0.5, -0.3, 0.05, 0.4], dtype=torch.double)


def batch(right: list[list[int]]) -> Batch:
    return Batch({"items/surface": torch.tensor([[1, 2], [1, 0]]), "items/entity": torch.tensor(right)})


def test_right_candidates_lie_above_the_margin_and_others_below() -> None:
    objective, given = Linking(tables=TABLES), batch([[1, 4], [2, 0]])  # 4: no entity
    loss = objective({"linking": SCORES}, given)
    torch.testing.assert_close(loss.total, torch.tensor(0.1 + 0.0 + 0.0 + 0.25 + 0.0, dtype=torch.double))
    assert objective.count(given) == 5 and loss.metrics["correct"] == 4


def test_names_that_are_not_asked_do_not_count() -> None:
    objective, given = Linking(tables=TABLES), batch([[2, 0], [0, 0]])
    loss = objective({"linking": SCORES}, given)
    torch.testing.assert_close(loss.total, torch.tensor(0.3 + 0.7, dtype=torch.double))
    assert objective.count(given) == 2 and loss.metrics["correct"] == 0
