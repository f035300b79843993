"""Losses that compare all rows of a step do not depend on how it is divided into micro-batches and between processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.objectives import Contrast
from cloze.training.together import VectorCollector, replaying

WIDTH, ROWS = 5, 12


def readings(vectors: Tensor, rows: slice) -> dict[str, Tensor]:
    return {"query": vectors[rows, 0], "key": vectors[rows, 1]}


def batch(rows: slice) -> Batch:
    return Batch({"tokens": (torch.arange(ROWS) % 9)[rows, None]})  # three keys come twice


def build() -> Contrast:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = Contrast(width=WIDTH, project=4, temperature=0.3)
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        return made


def whole(vectors: Tensor) -> tuple[float, Tensor, list[Tensor]]:
    """The loss of the undivided step, and its gradients."""
    contrast, own = build(), vectors.clone().requires_grad_()
    loss = contrast(readings(own, slice(None)), batch(slice(None)))
    loss.total.backward()
    assert own.grad is not None
    return loss.total.item(), own.grad, [p.grad for p in contrast.parameters() if p.grad is not None]


def divided(vectors: Tensor, ranks: list[list[slice]], order: list[int]) -> tuple[float, Tensor, list[Tensor]]:
    """The same of ranks with micro-batches each; `order` is the one in which a gathering gives the ranks."""
    kept = []
    for pieces in ranks:
        contrast, collecting = build(), VectorCollector()
        with contrast.loss_by(collecting), torch.no_grad():
            for rows in pieces:
                assert contrast(readings(vectors, rows), batch(rows)).total.item() == 0
        kept.append(collecting.pieces)
    joined = [{name: torch.cat([piece[name] for piece in own]) for name in own[0]} for own in kept]
    total, of_vectors, of_head = 0.0, torch.zeros_like(vectors), [torch.zeros_like(p) for p in build().parameters()]
    for rank, pieces in enumerate(ranks):
        gathered = iter([[joined[other][name] for other in order] for name in joined[0]])  # as it is asked for, name by name
        told = SimpleNamespace(rank=rank, world=len(ranks), gather=lambda rows, gathered=gathered: next(gathered))
        contrast, own = build(), vectors.clone().requires_grad_()
        with contrast.loss_by(replaying(contrast, kept[rank], told)):
            for rows in pieces:
                loss = contrast(readings(own, rows), batch(rows)).total
                loss.backward()
                total += loss.item()
        assert own.grad is not None
        of_vectors += own.grad
        of_head = [known + p.grad for known, p in zip(of_head, contrast.parameters(), strict=True) if p.grad is not None]
    return total, of_vectors, of_head


DIVISIONS: dict[str, Any] = {
    "one rank, micro-batches of 5": [[slice(0, 5), slice(5, 10), slice(10, 12)]],
    "two ranks": [[slice(0, 6)], [slice(6, 12)]],
    "three ranks, micro-batches of 2": [[slice(s, s + 2), slice(s + 2, s + 4)] for s in (0, 4, 8)],
}


@pytest.mark.parametrize("how", DIVISIONS)
def test_a_divided_step_has_the_loss_and_the_gradients_of_the_undivided_one(how: str) -> None:
    vectors = torch.randn(ROWS, 2, WIDTH, generator=torch.Generator().manual_seed(1))
    ranks = DIVISIONS[how]
    total, of_vectors, of_head = divided(vectors, ranks, list(range(len(ranks))))
    expected, their_vectors, their_head = whole(vectors)
    assert total == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(of_vectors, their_vectors, atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(of_head, their_head, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_ranks_that_are_gathered_in_another_order_would_be_noticed() -> None:
    vectors = torch.randn(ROWS, 2, WIDTH, generator=torch.Generator().manual_seed(1))
    _, of_vectors, _ = divided(vectors, DIVISIONS["two ranks"], [1, 0])
    assert not torch.allclose(of_vectors, whole(vectors)[1], atol=1e-2)
