"""Contrast: ln N for constant scores, duplicates of the positive left out, gradient through both readings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import Contrast
from cloze.objectives.distances.contrast import fingerprints

WIDTH = 6


def batch(rows: int = 5) -> Batch:
    return Batch({"tokens": torch.arange(rows * 3).view(rows, 3)})


def states(rows: int = 5, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(rows, WIDTH, dtype=torch.double, generator=generator) for n in ("query", "key")}


def build(**changed: Any) -> Contrast:
    return Contrast(width=WIDTH, **changed).double()


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_constant_scores_lose_ln_n_per_example(rows: int) -> None:
    constant = torch.ones(rows, WIDTH, dtype=torch.double)
    loss = build()({"query": constant, "key": constant}, batch(rows))
    assert loss.total.item() / rows == pytest.approx(math.log(rows))
    assert float(build().count(batch(rows))) == rows


def test_the_loss_is_the_cross_entropy_of_the_products() -> None:
    readings = states()
    loss = build(temperature=0.5)(readings, batch())
    scores = readings["query"] @ readings["key"].t() / 0.5
    torch.testing.assert_close(loss.total, torch.nn.functional.cross_entropy(scores, torch.arange(5), reduction="sum"))
    assert loss.metrics["correct"] == (scores.argmax(1) == torch.arange(5)).sum()


def test_normalised_scores_are_cosines() -> None:
    readings = states()
    scores = build(normalise=True, temperature=0.5).scores(readings, batch())
    query, key = (readings[name][:, None] if name == "query" else readings[name][None] for name in ("query", "key"))
    torch.testing.assert_close(scores, torch.cosine_similarity(query, key, dim=-1) / 0.5)


def test_each_query_is_compared_with_as_many_keys_as_are_drawn_for_it_in_this_step() -> None:
    clock, rows = Clock(seed=3), 9
    contrast = build(negatives=4, temperature=0.1, normalise=True, clock=clock)
    tokens = torch.arange(rows)[:, None]
    tokens[1] = tokens[0]  # is no negative of the first
    readings, drawn = states(rows), []
    for step in (0, 1, 0):
        clock.set(step=step, first_row=step)
        scores = contrast.scores(readings, Batch({"tokens": tokens}))
        kept = scores.isfinite()
        assert kept.sum(1).tolist() == [5] * rows and kept.diagonal().all() and not kept[0, 1] and not kept[1, 0]
        drawn.append(kept)
    assert not torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])
    # -log of exp(γ cos(Q, D+)) over the sum with the four others (Huang et al., 2013, eq. 6 and 7), γ = 10
    cosines = torch.cosine_similarity(readings["query"][:, None], readings["key"][None], dim=-1)
    expected = -sum(math.log(
        math.exp(10 * cosines[row, row]) / sum(math.exp(10 * cosines[row, key]) for key in range(rows) if drawn[2][row, key])
    ) for row in range(rows))
    assert contrast(readings, Batch({"tokens": tokens})).total.item() == pytest.approx(expected)
    assert build(negatives=40, clock=clock).scores(readings, batch(rows)).isfinite().all()


def test_keys_with_the_tokens_of_the_positive_are_no_negatives() -> None:
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6], [1, 2, 3], [3, 2, 1]])
    scores = build().scores(states(4), Batch({"tokens": tokens}))
    assert scores.isinf().nonzero().tolist() == [[0, 2], [2, 0]]
    constant = torch.ones(4, WIDTH, dtype=torch.double)
    loss = build()({"query": constant, "key": constant}, Batch({"tokens": tokens}))
    assert loss.total.item() == pytest.approx(2 * math.log(3) + 2 * math.log(4))


def test_the_gradient_reaches_both_readings_and_is_the_same_when_they_change_places() -> None:
    readings = {name: value.requires_grad_() for name, value in states(2).items()}
    scores = build().scores(readings, batch(2))
    (torch.logsumexp(scores.flatten(), 0) - scores.trace()).backward()
    turned = {name: states(2)[other].requires_grad_() for name, other in (("query", "key"), ("key", "query"))}
    scores = build().scores(turned, batch(2))
    (torch.logsumexp(scores.flatten(), 0) - scores.trace()).backward()
    torch.testing.assert_close(readings["query"].grad, turned["key"].grad)
    torch.testing.assert_close(readings["key"].grad, turned["query"].grad)


@pytest.mark.parametrize("changed", [{}, {"normalise": True, "temperature": 0.1}, {"project": 4}])
def test_gradients_agree_with_finite_differences(changed: dict[str, Any]) -> None:
    objective = build(**changed)
    names = [name for name, _ in objective.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in objective.parameters()]

    def run(query: Tensor, key: Tensor, *given: Tensor) -> Tensor:
        made: Any = torch.func.functional_call(
            objective, dict(zip(names, given, strict=True)), ({"query": query, "key": key}, batch(3))
        )
        return made.total

    assert torch.autograd.gradcheck(run, (*(value.requires_grad_() for value in states(3).values()), *values))


def test_no_examples_give_a_connected_zero() -> None:
    objective = build(project=4)
    readings = {name: torch.zeros(0, WIDTH, dtype=torch.double, requires_grad=True) for name in ("query", "key")}
    loss = objective(readings, Batch({"tokens": torch.zeros(0, 3, dtype=torch.long)}))
    loss.total.backward()
    assert loss.total.item() == 0 and all(p.grad is not None and p.grad.eq(0).all() for p in objective.parameters())


def test_it_belongs_to_the_batch_and_refuses_no_temperature() -> None:
    assert build().scope == "step"
    with pytest.raises(RecipeError, match="temperature"):
        build(temperature=0.0)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=8))
def test_examples_have_the_same_fingerprint_exactly_when_their_tokens_are_equal(rows: list[list[int]]) -> None:
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    block = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    made = fingerprints(tokens, block, len(rows))
    assert (made[:, None] == made).tolist() == [[one == other for other in rows] for one in rows]
    packed = torch.tensor([sum(rows, [])])
    ordinal = torch.tensor([[number + 1 for number, row in enumerate(rows) for _ in row]])
    assert torch.equal(fingerprints(packed, ordinal, len(rows)), made)


def test_wrong_texts_of_all_examples_are_further_negatives() -> None:
    given = {**states(), "wrong": states(seed=1)["key"]}
    loss = build(wrong=True, temperature=0.5, normalise=True)(given, batch())
    query, key, wrong = (torch.nn.functional.normalize(given[name], dim=1) for name in ("query", "key", "wrong"))
    expected = 0.0
    for row in range(5):  # Gao et al. (2021), eq. 5
        others = [float(query[row] @ text) / 0.5 for text in (*key, *wrong)]
        expected -= math.log(math.exp(float(query[row] @ key[row]) / 0.5) / sum(map(math.exp, others)))
    assert loss.total.item() == pytest.approx(expected)
