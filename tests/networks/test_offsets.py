"""Heads that begin by attending to the token at a fixed distance (`initial.offsets`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.networks import Clock, Transformer
from tests.making import network_of

OFFSETS = [-1, 1, -2, 0]  # of two heads in each of two layers
SHAPE: dict[str, Any] = {"layers": 2, "width": 128, "heads": 2, "positions.max_length": 512, "segments": 2, "dropout": 0.0}


def built(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    made = network_of("transformer", **{**SHAPE, **changes}, vocab_size=1000, clock=Clock(0))
    assert isinstance(made, Transformer)
    return made.eval()


def attended(network: Transformer, first: int = 0) -> list[float]:
    """The mean probability that each head gives to the token at its offset, in rows whose first position is `first`."""
    tokens = torch.randint(0, 1000, (8, 40))
    with torch.no_grad():
        found: Tensor = network(
            want=frozenset({"attention"}), tokens=tokens, position_ids=(first + torch.arange(40)).expand(8, 40)
        )["attention"]
    heads = found.movedim(2, 1).flatten(0, 1)  # (4, B, L, L)
    return [float(head.diagonal(offset, 1, 2).mean()) for head, offset in zip(heads, OFFSETS, strict=True)]


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({}, 0.6), ({"segments": 0, "positions.max_length": 130}, 0.6), ({"initial.std": 0.05}, 0.4),
        ({"heads": 4, "layers": 1}, 0.4),
        ({"embedding.width": 32}, 0.2), ({"norm": {"pre": {"embedding": False}}, "layers": 1, "heads": 4}, 0.4),
    ],
    ids=["post-norm", "no segments", "wider weights", "four heads", "narrow embeddings", "pre-norm"],
)  # fmt: skip
@pytest.mark.parametrize("first", [0, 90])
def test_heads_begin_at_their_offsets_wherever_the_tokens_are(changes: dict[str, Any], least: float, first: int) -> None:
    shares = attended(built(**{"initial.offsets": OFFSETS, **changes}), first)
    assert min(shares) > least, shares
    assert max(attended(built(**changes), first)) < 0.06  # 1 / 40 where all tokens count the same


def test_other_weights_are_drawn_as_they_are_without_offsets() -> None:
    plain, made = built().state_dict(), built(**{"initial.offsets": OFFSETS}).state_dict()
    changed = {name for name in plain if not torch.equal(plain[name], made[name])}
    assert changed == {"embeddings.positions.weight", *(f"layers.{n}.attention.projections.weight" for n in (0, 1))}
    projections = made["layers.0.attention.projections.weight"]
    assert torch.equal(projections[256:], plain["layers.0.attention.projections.weight"][256:])  # values
    positions = made["embeddings.positions.weight"]
    assert positions.std().item() == pytest.approx(plain["embeddings.positions.weight"].std().item(), rel=0.02)


def test_heads_beyond_the_offsets_are_drawn_as_usual() -> None:
    plain, made = built().state_dict(), built(**{"initial.offsets": OFFSETS[:2]}).state_dict()
    changed = {name for name in plain if not torch.equal(plain[name], made[name])}
    assert changed == {"embeddings.positions.weight", "layers.0.attention.projections.weight"}


def test_a_first_layer_without_a_norm_before_it_begins_as_drawn() -> None:
    shares = attended(built(**{"initial.offsets": [*OFFSETS[2:], *OFFSETS[:2]], "norm": {"post": {"embedding": False}}}))
    assert max(shares[:2]) < 0.06 and min(shares[2:]) > 0.4


def test_positions_that_are_not_learned_ignore_offsets() -> None:
    fixed = {"positions": {"rotary": {}}}
    plain, made = built(**fixed).state_dict(), built(**{**fixed, "initial.offsets": OFFSETS}).state_dict()
    assert all(torch.equal(plain[name], made[name]) for name in plain)
