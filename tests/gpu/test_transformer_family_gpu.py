"""Bands, rotary and functional positions on a GPU: kernels for packed rows and for masks against float32 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks import Clock
from tests.making import network_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]
HIDDEN = frozenset({"hidden"})
KINDS: dict[str, dict[str, Any]] = {
    "banded": {"attention.band.width": 24, "attention.band.dense_every": 2},
    "modern": {"norm": "pre", "norm.embedding": True, "norm.first": False, "positions": "rotary", "positions.local_base": 100.0,
        "attention.band.width": 24, "attention.band.dense_every": 3, "attention.biases": False, "feed_forward.biases": False,
            "norm.kind": "layer_without_biases", "feed_forward": "gated"},
    "functional": {"positions": "functional", "positions.limit": 8},
    "shared": {"repeat": "all"},
    "llama": {"norm": "pre", "norm.kind": "rms", "positions": "rotary", "positions.scaling": "llama3", "feed_forward": "gated",
        "feed_forward.activation": "silu", "attention.key_value_heads": 1, "attention.head_width": 32,
            "attention.query_key_norm": "head", "attention.band.width": 24, "attention.band.dense_first": 2},
}  # fmt: skip


def packed(rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Blocks of 40, 60 and 20 tokens and 8 of padding, with positions that restart."""
    sizes = (40, 60, 20, 8)
    block = torch.cat([torch.full((n,), (i + 1) % 4) for i, n in enumerate(sizes)]).expand(rows, length)
    return block.contiguous(), torch.cat([torch.arange(n) for n in sizes]).expand(rows, length).contiguous()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["open", "left_to_right"])
@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("low", [False, True])
def test_outputs_and_gradients_are_those_of_the_cpu(kind: str, order: str, packing: bool, low: bool) -> None:
    torch.manual_seed(0)
    network = network_of("transformer", **KINDS[kind], layers=4, width=128, heads=2, dropout=0.0, vocab_size=500, clock=Clock(3),
        **{"positions.max_length": 256})
    tokens = torch.randint(0, 500, (4, 128), generator=torch.Generator().manual_seed(1))
    fields: dict[str, Tensor] = {}
    if packing:
        fields["block"], fields["position_ids"] = packed(4, 128)
    real = fields["block"] > 0 if packing else torch.ones_like(tokens, dtype=torch.bool)
    weights = torch.randn(*tokens.shape, 128) * real[..., None]
    exact = network(want=HIDDEN, tokens=tokens, order=order, **fields)["hidden"]
    (exact * weights).sum().backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    network.clock.to("cuda")
    network.cuda()
    with torch.autocast("cuda", torch.bfloat16, enabled=low):
        moved = Batch(fields).to("cuda")
        hidden = network(want=HIDDEN, tokens=tokens.cuda(), order=order, **moved)["hidden"]
    (hidden.float() * weights.cuda()).sum().backward()
    assert (hidden.detach().float().cpu() - exact.detach())[real].abs().max() < (0.15 if low else 2e-3)
    bound = 0.06 if low else 2e-3
    for name, p in network.named_parameters():
        assert (p.grad.cpu() - expected[name]).norm() <= bound * expected[name].norm() + 1e-3, name
