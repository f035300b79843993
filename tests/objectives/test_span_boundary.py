"""SpanBERT's objective: which three vectors it reads, its layers, and the contract of objectives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.objectives import SpanBoundary, span_boundary

WIDTH, VOCABULARY, LENGTH = 8, 23, 6


def build(**changed: Any) -> SpanBoundary:
    torch.manual_seed(0)
    table = nn.Embedding(VOCABULARY, WIDTH)
    objective = span_boundary(
        max_length=4, position_width=3, width=WIDTH, vocab_size=VOCABULARY, table=table, **changed
    ).double()
    table.double()
    for parameter in objective.parameters():
        nn.init.normal_(parameter, std=0.3)
    return objective


def span(first: int, last: int, row: int = 0) -> Batch:
    """The answers of one span of a row: every token from the positions next to the span."""
    size = last - first + 1
    positions = torch.full((size,), row * LENGTH)
    return Batch(
        {
            "targets/boundary": torch.arange(size) + 5, "positions/boundary": positions + first - 1,
            "positions/boundary_right": positions + last + 1, "targets/boundary_right": torch.arange(size) + 1,
        }
    )


def join(*batches: Batch) -> Batch:
    return Batch({name: torch.cat([batch[name] for batch in batches]) for name in batches[0]})


def state(rows: int = 2) -> Tensor:
    return torch.randn(rows, LENGTH, WIDTH, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def test_scores_are_two_layers_over_both_boundaries_and_the_position() -> None:
    objective, hidden = build(), state()
    scores = objective.scores({"hidden": hidden}, span(2, 4, row=1))
    assert scores.shape == (3, VOCABULARY)
    joined = torch.cat([hidden[1, 1], hidden[1, 5], objective.positions.weight[2]])
    first = F.layer_norm(F.gelu(objective.join(joined)), (WIDTH,), objective.norm.weight, objective.norm.bias, 1e-12)
    head: Any = objective.head
    second = F.layer_norm(F.gelu(head.dense(first)), (WIDTH,), head.norm.weight, head.norm.bias, 1e-12)
    torch.testing.assert_close(scores[2], head.weight @ second + head.bias)


def test_only_the_boundaries_are_read() -> None:
    objective, hidden = build(), state().requires_grad_()
    objective({"hidden": hidden}, span(2, 4)).total.backward()
    assert hidden.grad is not None
    assert hidden.grad.abs().sum(-1).nonzero().tolist() == [[0, 1], [0, 5]]


def test_both_boundaries_are_places_that_a_pass_must_compute() -> None:
    assert build().at == ("positions/boundary", "positions/boundary_right")


def test_the_loss_is_the_sum_over_spans_and_that_of_its_scores() -> None:
    objective, states = build(), {"hidden": state()}
    one, two = span(1, 2), span(3, 4, row=1)
    both = objective(states, join(one, two))
    torch.testing.assert_close(both.total, objective(states, one).total + objective(states, two).total)
    torch.testing.assert_close(both.total, objective.loss(objective.scores(states, join(one, two)), join(one, two)).total)


def test_no_answers_give_a_zero_connected_to_every_parameter() -> None:
    objective, hidden = build(), state().requires_grad_()
    empty = Batch({name: value[:0] for name, value in span(2, 4).items()})
    loss = objective({"hidden": hidden}, empty)
    loss.total.backward()
    assert loss.total.item() == 0 and hidden.grad is not None
    assert all(parameter.grad is not None and parameter.grad.eq(0).all() for parameter in objective.parameters())


def test_padded_answers_do_not_count() -> None:
    objective, states, whole = build(), {"hidden": state()}, span(2, 4)
    padded = Batch(
        {name: torch.cat([value, torch.zeros(2, dtype=torch.long)]) for name, value in whole.items()}
        | {"weights/boundary": torch.tensor([1.0, 1, 1, 0, 0])}
    )
    assert float(objective.count(padded)) == 3
    torch.testing.assert_close(objective(states, padded).total, objective(states, whole).total)


def test_gradients_agree_with_finite_differences() -> None:
    objective, batch = build(), span(2, 4)
    names = [name for name, _ in objective.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in objective.parameters()]

    def run(hidden: Tensor, *given: Tensor) -> Tensor:
        made: Any = torch.func.functional_call(objective, dict(zip(names, given, strict=True)), ({"hidden": hidden}, batch))
        return made.total

    assert torch.autograd.gradcheck(run, (state().requires_grad_(), *values))


def test_names_and_sizes_of_the_published_head() -> None:
    with torch.device("meta"):
        objective = span_boundary(width=768, vocab_size=28996, table=nn.Embedding(28996, 768))
    shapes = {name: tuple(value.shape) for name, value in objective.state_dict().items()}
    assert shapes["positions.weight"] == (15, 200) and shapes["join.weight"] == (768, 2 * 768 + 200)
    assert shapes["head.dense.weight"] == (768, 768) and shapes["head.bias"] == (28996,)
    assert "head.output.weight" not in shapes


def test_a_tie_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no token table"):
        span_boundary(width=WIDTH, vocab_size=VOCABULARY)
