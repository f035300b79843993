"""`candidate_prediction`: the scores of candidates by the formula of NPoe/ebert's code/run_aida.py, in numpy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.batching.collate import pad_targets
from cloze.errors import RecipeError
from cloze.objectives import CandidatePrediction
from cloze.objectives.product import Product
from tests.simulated_gpu import SimulatedGpu

WIDTH, VOCABULARY = 6, 20


def objective() -> CandidatePrediction:
    torch.manual_seed(0)
    made = CandidatePrediction(width=9, vector_tables={"tokens": SimpleNamespace(embedding_dim=WIDTH)}).double()
    with torch.no_grad():
        made.head.bias.fill_(0.7)
    return made


def example() -> tuple[Product, Batch]:
    """Three rows of five tokens; the second has no mention, and the third has two candidates."""
    g = torch.Generator().manual_seed(1)
    rows, table = (torch.randn(n, WIDTH, generator=g, dtype=torch.double) for n in (2, VOCABULARY))
    batch = Batch({
        "tokens": torch.zeros(3, 5, dtype=torch.long), "positions/entity": torch.tensor([2, 13]),
        "targets/entity": torch.tensor([11, 4]), "items/candidate": torch.tensor([[10, 11, 12], [0, 0, 0], [13, 14, 0]]),
        "item_length/candidate": torch.tensor([3, 0, 2]),
        "item_vectors/candidate": torch.log(torch.tensor([[0.5, 0.3, 0.1], [1, 1, 1], [0.6, 0.4, 1]]))[:, :, None],
    })
    return Product(rows, table, torch.full((VOCABULARY,), -1e4, dtype=torch.double)), batch


def expected() -> list[np.ndarray[Any, Any]]:
    """The logits of each mention: the vector of no entity and those of the candidates times the state, plus bias and priors."""
    product, batch = example()
    made, logits = objective(), []
    for state, row in zip(product.rows.numpy(), (0, 2), strict=True):
        length = int(batch["item_length/candidate"][row])
        ids, priors = (batch[name][row, :length].numpy() for name in ("items/candidate", "item_vectors/candidate"))
        vectors = np.concatenate([made.head.vector.detach().numpy(), product.table.numpy()[ids]])
        logits.append(vectors @ state + np.concatenate([[0.7], priors[:, 0]]))
    return logits


def test_candidates_are_scored_by_their_rows_and_priors_and_no_entity_by_a_vector_and_bias_of_its_own() -> None:
    product, batch = example()
    scores = objective().scores({"scores": product}, batch).detach().numpy()
    assert scores.shape == (2, 4) and np.isneginf(scores[1, 3])
    for row, logits in zip(scores, expected(), strict=True):
        np.testing.assert_allclose(row[: len(logits)], logits, rtol=1e-6)


def test_the_loss_is_minus_the_log_of_the_probability_of_the_target_or_of_no_entity() -> None:
    product, batch = example()
    made = objective()
    loss = made({"scores": product}, batch)
    costs = [np.log(np.exp(logits).sum()) - logits[right] for logits, right in zip(expected(), (2, 0), strict=True)]
    torch.testing.assert_close(loss.total, torch.tensor(sum(costs), dtype=torch.double))
    right = sum(int(logits.argmax()) == target for logits, target in zip(expected(), (2, 0), strict=True))
    assert loss.metrics["correct"] == right and made.count(batch) == 2


def test_gradients_reach_the_states_and_the_parameters_and_of_the_biases_they_are_zero() -> None:
    product, batch = example()
    made, leaves = objective(), Product(*(tensor.requires_grad_() for tensor in product if tensor is not None))
    total = made({"scores": leaves}, batch).total
    rows, bias, vector, none = torch.autograd.grad(total, [leaves.rows, leaves.bias, made.head.vector, made.head.bias])
    assert rows.any() and vector.any() and none.any() and not bias.any()


def test_a_gpu_has_the_same_loss_and_waits_for_nothing() -> None:
    product, batch = example()
    with SimulatedGpu() as gpu:
        made, moved = objective().to("cuda"), Batch(dict(batch)).to("cuda", non_blocking=True)
        far = Product(*(tensor.to("cuda") for tensor in product if tensor is not None))
        gpu.waits.clear()
        total = made({"scores": far}, moved).total
        total.backward()
        assert not gpu.waits
        found = total.item()
    assert found == pytest.approx(objective()({"scores": product}, batch).total.item())


def test_a_step_without_mentions_has_a_loss_of_zero() -> None:
    product, batch = example()
    none = {name: batch[name][:0] for name in ("positions/entity", "targets/entity")}
    loss = objective()({"scores": product._replace(rows=product.rows[:0])}, Batch({**batch, **none}))
    assert loss.total == 0


def test_the_vector_of_no_entity_starts_inside_its_bound_and_the_bias_at_zero() -> None:
    torch.manual_seed(0)
    made = CandidatePrediction(width=200)
    assert 0.015 < float(made.head.vector.detach().abs().max()) <= 0.02 and not made.head.bias.any()
    assert sum(parameter.numel() for parameter in made.parameters()) == 201


def test_scores_that_were_multiplied_out_are_refused() -> None:
    product, batch = example()
    with pytest.raises(RecipeError, match="another part of the recipe reads the scores themselves"):
        objective().scores({"scores": product.scores()}, batch)


def test_targets_that_fill_a_batch_up_change_neither_loss_nor_gradients() -> None:
    product, batch = example()
    names = ("positions/entity", "targets/entity")
    filled = pad_targets({name: batch[name].numpy() for name in names}, 4)
    rows = torch.cat([product.rows, torch.ones(2, WIDTH, dtype=torch.double)])
    padded = Batch({**batch, **{name: torch.from_numpy(array) for name, array in filled.items()}})
    results = []
    for states, given in ((product.rows, batch), (rows, padded)):
        made, leaf = objective(), states.clone().requires_grad_()
        loss = made({"scores": product._replace(rows=leaf)}, given)
        gradient, vector = torch.autograd.grad(loss.total, [leaf, made.head.vector])
        assert not gradient[2:].any()
        results.append((loss.total.detach(), loss.metrics["correct"], made.count(given), gradient[:2], vector))
    for exact, other in zip(*results, strict=True):
        torch.testing.assert_close(other, exact, check_dtype=False)
