"""Negative sampling, hierarchical softmax and GloVe's regression: worked examples, starts, draws, gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import CooccurrenceRegression, HierarchicalSoftmax, NegativeSampling
from cloze.objectives.static.output_words import OutputWords

COUNTS = np.array([15, 8, 6, 5, 3, 1])
WIDTH = 4


def sampling(**changed: Any) -> NegativeSampling:
    return NegativeSampling(**{"width": WIDTH, "vocab_size": 6, "clock": Clock(3), "counts": COUNTS, **changed}).double()


def walk(**changed: Any) -> HierarchicalSoftmax:
    return HierarchicalSoftmax(**{"width": WIDTH, "vocab_size": 6, "counts": COUNTS, **changed}).double()


MAKERS: dict[str, Callable[[], OutputWords]] = {
    "negative_sampling": sampling, "redrawn": lambda: sampling(redraw=True), "shared": lambda: sampling(share=True),
    "hierarchical_softmax": walk,
}


def example(rows: int = 3, answers: int = 7, seed: int = 0) -> tuple[dict[str, Tensor], Batch]:
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(rows, 5, WIDTH, dtype=torch.double, generator=generator)
    positions = torch.randint(0, rows * 5, (answers,), generator=generator).sort().values
    targets = torch.randint(0, 6, (answers,), generator=generator)
    return {"hidden": state}, Batch({"targets/main": targets, "positions/main": positions})


def drawn(objective: OutputWords, seed: int = 1) -> OutputWords:
    generator = torch.Generator().manual_seed(seed)
    objective.head.weight.data.copy_(torch.randn(objective.head.weight.shape, generator=generator))
    return objective


def test_one_step_by_hand() -> None:
    """v = (.1, -.2), u+ = (.3, .4), u- = (-.5, .2), rate .1."""
    objective = sampling(width=2, vocab_size=2, negatives=1, counts=np.array([1, 10**9]))  # the negative is id 1
    objective.head.weight.data.copy_(torch.tensor([[0.3, 0.4], [-0.5, 0.2]], dtype=torch.double))
    state = torch.tensor([[[0.1, -0.2]]], dtype=torch.double, requires_grad=True)
    loss = objective({"hidden": state}, Batch({"targets/main": torch.tensor([0]), "positions/main": torch.tensor([0])}))
    loss.total.backward()
    assert loss.total.item() == pytest.approx(1.367619, abs=1e-6)
    assert state.grad is not None and objective.head.weight.grad is not None
    after = (state - 0.1 * state.grad).detach().flatten().tolist()
    assert after == pytest.approx([0.13925068, -0.18905041], abs=1e-8)
    outputs = (objective.head.weight - 0.1 * objective.head.weight.grad).detach().flatten().tolist()
    assert outputs == pytest.approx([0.30512497, 0.38975005, -0.50477515, 0.20955030], abs=1e-8)


def test_a_new_model_pays_ln_2_for_every_word_it_judges() -> None:
    states, batch = example(answers=50)
    assert sampling(redraw=True)(states, batch).total.item() / 50 == pytest.approx(6 * math.log(2), abs=1e-12)
    left = int((sampling().draw(batch["targets/main"], batch["positions/main"], 5) >= 0).sum())
    assert left < 250  # some negatives were the target and are left out
    assert sampling()(states, batch).total.item() == pytest.approx((50 + left) * math.log(2), abs=1e-9)


def test_the_noise_is_the_counts_to_the_power() -> None:
    assert sampling().noise.tolist() == pytest.approx([0.33378, 0.20831, 0.16788, 0.14642, 0.09982, 0.04379], abs=1e-5)


def test_negatives_come_as_often_as_the_noise_says_and_never_a_role() -> None:
    objective = sampling(spellings=["[PAD]", "[UNK]", "a", "b", "c", "d"], negatives=50)
    found = objective.draw(torch.full((2000,), -5), torch.arange(2000), 1000)
    shares = torch.bincount(found.flatten(), minlength=6).double() / found.numel()
    assert shares[:2].tolist() == [0, 0]
    torch.testing.assert_close(shares, objective.noise, atol=5e-3, rtol=0)


def test_a_negative_that_is_the_target_is_left_out_or_drawn_anew() -> None:
    targets, positions = torch.zeros(400, dtype=torch.long), torch.arange(400)
    skipped, redrawn = (sampling(redraw=redraw).draw(targets, positions, 400) for redraw in (False, True))
    assert (skipped == -1).double().mean() == pytest.approx(0.334, abs=0.03)
    assert (redrawn > 0).all()
    assert torch.equal(redrawn[skipped >= 0], skipped[skipped >= 0])


def test_draws_belong_to_the_row_and_not_to_the_batch() -> None:
    _, batch = example(rows=3, answers=40, seed=4)
    targets, positions = batch["targets/main"], batch["positions/main"]
    objective = sampling()
    whole = objective.draw(targets, positions, 5)
    last = positions >= 10
    objective.clock.set(first_row=2)
    assert torch.equal(objective.draw(targets[last], positions[last] - 10, 5), whole[last])
    objective.clock.set(first_row=0, step=1)
    assert not torch.equal(objective.draw(targets, positions, 5), whole)


def test_shared_negatives_are_those_of_all_pairs_of_a_centre() -> None:
    targets = torch.tensor([5, 5, 5, 4, 4, 5])
    found = sampling(share=True, negatives=8, counts=np.array([9, 9, 9, 9, 1, 1])).draw(targets, torch.arange(6), 6)
    kept = [row[row >= 0].tolist() for row in found]
    assert kept[0] == kept[1] == kept[2] and kept[3] == kept[4] and kept[0] != kept[3] and kept[0] != kept[5]


@pytest.mark.parametrize("name", ["hierarchical_softmax"])
def test_the_probabilities_of_all_words_add_up_to_one(name: str) -> None:
    objective = drawn(walk())
    state = torch.randn(1, 1, WIDTH, dtype=torch.double, generator=torch.Generator().manual_seed(2)).expand(1, 6, WIDTH)
    batch = Batch({"targets/main": torch.arange(6), "positions/main": torch.arange(6)})
    logs = torch.nn.functional.logsigmoid(objective.scores({"hidden": state}, batch)).sum(1)
    assert logs.exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_a_turn_to_the_left_is_bit_0_and_counts_with_plus() -> None:
    objective = walk(width=1, vocab_size=2, counts=np.array([2, 1]))  # one node; codes 1 and 0: the smaller is picked first
    assert [bits.tolist() for bits in objective.codes.bits] == [[1], [0]]
    objective.head.weight.data.fill_(1.5)
    batch = Batch({"targets/main": torch.tensor([0, 1]), "positions/main": torch.tensor([0, 0])})
    scores = objective.scores({"hidden": torch.ones(1, 1, 1, dtype=torch.double)}, batch)
    assert scores.flatten().tolist() == [-1.5, 1.5]


def test_a_role_costs_nothing_and_has_no_path() -> None:
    objective = drawn(walk(spellings=["[UNK]", "a", "b", "c", "d", "e"]))
    states, _ = example()
    asked = Batch({"targets/main": torch.tensor([0]), "positions/main": torch.tensor([0])})
    assert objective(states, asked).total.item() == 0
    assert objective.counts.tolist() == [0, 8, 6, 5, 3, 1]


@pytest.mark.parametrize("name", MAKERS)
def test_zero_answers_give_a_zero_connected_to_the_table(name: str) -> None:
    objective = MAKERS[name]()
    states, batch = example(answers=0)
    states["hidden"].requires_grad_()
    loss = objective(states, batch)
    loss.total.backward()
    assert loss.total.item() == 0 and objective.count(batch).item() == 0
    assert objective.head.weight.grad is not None and not objective.head.weight.grad.any()
    assert states["hidden"].grad is not None


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_are_those_of_the_loss(name: str) -> None:
    objective = drawn(MAKERS[name]())
    states, batch = example()
    state = states["hidden"].requires_grad_()
    weight = objective.head.weight.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda h, w: _loss(objective, h, w, batch), (state, weight))


def _loss(objective: OutputWords, state: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    return torch.func.functional_call(objective, {"head.weight": weight}, ({"hidden": state}, batch)).total


@pytest.mark.parametrize("name", MAKERS)
def test_answers_of_weight_zero_do_not_count(name: str) -> None:
    objective = drawn(MAKERS[name]())
    states, batch = example()
    weighed = Batch({**batch, "weights/main": torch.tensor([1.0] * 4 + [0.0] * 3)})
    fewer = Batch({field: value[:4] for field, value in batch.items()})
    assert objective.count(weighed).item() == 4
    torch.testing.assert_close(objective(states, weighed).total, objective(states, fewer).total)


@pytest.mark.parametrize("name", MAKERS)
def test_a_checkpoint_brings_its_own_counts(name: str) -> None:
    trained, fresh = drawn(MAKERS[name]()), MAKERS[name]()
    fresh.counts.fill_(1)
    states, batch = example(answers=30)
    fresh(states, batch)  # what is made of the counts is made
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh(states, batch).total, trained(states, batch).total)


def test_the_optimum_is_the_pmi_less_ln_k() -> None:
    """Levy and Goldberg (2014): for cells C, k = 2 and noise by the counts the best w · c is PMI - ln k."""
    cells = torch.tensor([[2.0, 4, 1], [4, 2, 1], [1, 1, 2]], dtype=torch.double)
    noise = cells.sum(1, keepdim=True) * cells.sum(0) / cells.sum()
    scores = torch.zeros(3, 3, dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14)

    def closure() -> Tensor:
        optimizer.zero_grad()
        right, wrong = torch.nn.functional.softplus(-scores), torch.nn.functional.softplus(scores)
        loss = (cells * right + 2 * noise * wrong).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = sorted({round(v, 6) for v in scores.detach().flatten().tolist()})
    assert found == pytest.approx([-1.134980, -1.001449, -0.308301, 0.117783], abs=2e-6)


def test_a_number_of_negatives_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(RecipeError, match="at least 1"):
        sampling(negatives=0)
    with pytest.raises(RecipeError, match="limit"):
        CooccurrenceRegression(limit=0)


def test_cells_weigh_by_their_counts() -> None:
    weights = CooccurrenceRegression(limit=100).weigh(torch.tensor([1.0, 10, 50, 100, 1e6]))
    assert weights.tolist() == pytest.approx([0.0316228, 0.1778279, 0.5946036, 1, 1], abs=1e-7)


def test_a_cell_costs_half_its_weighted_square() -> None:
    batch = Batch({"cell": torch.tensor([[0, 1]]), "cell_count": torch.tensor([20.0])})
    association = torch.tensor([0.1 * 0.3 - 0.2 * 0.4 + 0.05 - 0.05], dtype=torch.double)
    loss = CooccurrenceRegression()({"association": association}, batch)
    assert loss.total.item() == pytest.approx(1.38715807, abs=1e-8)
    assert loss.metrics["error"].item() == pytest.approx(3.04573227**2, abs=1e-7)
