"""Adapters: where they stand, how many parameters they train, and that nothing else moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from cloze.changes import Adapters, Change, LoRA, PfeifferAdapters
from cloze.networks import Clock
from cloze.networks.blocks.computed import is_added
from cloze.networks.blocks.initial import SkipInit
from cloze.networks.fast.switch import switched
from tests.making import network_of

BERT = {"layers": 12, "width": 768, "heads": 12, "segments": 2, "norm": "post", "norm.embedding": True}
KINDS: Mapping[str, Mapping[str, Any]] = {
    "transformer": {"layers": 2, "width": 8, "heads": 2, "vocab_size": 20},
    "transformer_xl": {"layers": 2, "width": 8, "heads": 2, "vocab_size": 20},
    "two_stream": {"layers": 2, "width": 8, "heads": 2, "vocab_size": 20},
    "lstm": {"layers": 2, "width": 8, "inner": 6, "vocab_size": 20},
    "bilstm": {"layers": 2, "width": 8, "inner": 6, "vocab_size": 20},
    "gru": {"width": 8, "vocab_size": 20},
}


@pytest.mark.parametrize(("change", "count"), [
    (Adapters(width=64), 2_379_264), (PfeifferAdapters(width=48), 894_528), (LoRA(rank=8, on=("query", "value")), 294_912),
])  # fmt: skip
def test_bert_base_gets_as_many_trained_parameters_as_the_formula_says(change: Change, count: int) -> None:
    with torch.device("meta"), SkipInit():
        network = network_of("transformer", **BERT, vocab_size=30522, clock=Clock())
        change.apply(network)
    added = {name: p.numel() for name, p in network.named_parameters() if is_added(name)}
    assert sum(added.values()) == count
    trained = {name for name, p in network.named_parameters() if p.requires_grad} - added.keys()
    norms = {name for name, _ in network.named_parameters() if "norm" in name}
    assert trained == (norms if isinstance(change, Adapters) and change.trains_norms else set())
    assert len(norms) == 2 * (1 + 2 * 12)


def filled(shape: torch.Size, number: int) -> torch.Tensor:
    """The weights of the fixture: sines that differ from tensor to tensor."""
    return 0.5 * torch.sin(1.3 * torch.arange(shape.numel(), dtype=torch.float64) + 7 * number).view(shape).float()


#: What the package `adapters` 1.3.0 computes with transformers 4.57.6 for a BertModel of one layer with these weights: without
#: adapters, with its `DoubleSeqBnConfig` (GELU) and with its `SeqBnConfig` (ReLU), both of width 2.
THEIRS: dict[str, tuple[Change | None, list[float]]] = {
    "none": (None, [
        1.004575, -0.242381, -0.871792, -0.174673, -0.727358, -1.077287, 1.273565, 0.689488, -1.084492, -1.039732, 0.645453,
        2.207505,
    ]),
    "houlsby": (Adapters(width=2), [
        1.281679, -0.541471, -0.534462, -0.36451, -0.020257, -1.243714, 1.022877, 0.582909, -0.982094, -1.082269, 0.644862,
        2.177957,
    ]),
    "pfeiffer": (PfeifferAdapters(width=2), [
        1.217897, -0.464265, -0.695139, -0.195764, -0.695843, -1.168346, 1.063462, 1.261499, -0.980101, -1.062857, 0.530377,
        2.326499,
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_adapters_stand_where_the_package_adapters_puts_them(name: str) -> None:
    change, expected = THEIRS[name]
    network = network_of(
        "transformer", layers=1, width=4, heads=2, segments=1, norm="post", vocab_size=5, clock=Clock(),
        **{"feed_forward.inner": 6, "positions.max_length": 4, "norm.embedding": True},
    ).eval()
    if change is not None:
        change.apply(network)
    layer = network.layers[0]
    tables, stacked = network.embeddings, layer.attention.projections
    roles: list[Any] = [
        tables.tokens, tables.positions, tables.segments, tables.norm, stacked, stacked, stacked, layer.attention.out,
        layer.attention_norm, layer.inner, layer.outer, layer.inner_norm,
    ]
    for residual in ("attention", "inner"):
        adapter = layer.around[residual].bottleneck if residual in layer.around else None
        roles += [None, None] if adapter is None else [adapter.down, adapter.up]
    with torch.no_grad():
        for number, module in enumerate(roles):
            rows = slice(4 * (number - 4), 4 * (number - 3)) if number in (4, 5, 6) else slice(None)
            for place, key_ in enumerate(("weight", "bias")):
                own = None if module is None else getattr(module, key_, None)
                if own is not None:
                    gain = 1.0 if key_ == "weight" and "norm" in type(module).__name__.lower() else 0.0
                    own[rows].copy_(filled(own[rows].shape, 2 * number + place) + gain)
        found = network(want=frozenset({"hidden"}), tokens=torch.tensor([[0, 1, 2]]))["hidden"]
    torch.testing.assert_close(found.flatten(), torch.tensor(expected), atol=2e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [Adapters(width=3), PfeifferAdapters(width=3)])
def test_adapters_change_no_bit_of_the_outputs_at_the_start_and_train_alone(change: Adapters, kind: str) -> None:
    torch.manual_seed(0)
    network = network_of(kind, **KINDS[kind], clock=Clock())
    fields: dict[str, Any] = {"tokens": torch.arange(10).view(2, 5)}
    want = frozenset({"hidden"})

    with switched(False):
        network.eval()
        before = network(want=want, **fields)["hidden"]
        change.apply(network)
        assert torch.equal(network(want=want, **fields)["hidden"], before)
    network.train()
    own = {name: p.detach().clone() for name, p in network.named_parameters() if not p.requires_grad}
    moving = {name: p.detach().clone() for name, p in network.named_parameters() if is_added(name)}
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(100 if kind == "transformer" else 3):
        optimizer.zero_grad()
        network(want=want, **fields)["hidden"].square().mean().backward()
        optimizer.step()
    now = dict(network.named_parameters())
    assert own and all(torch.equal(now[name], tensor) for name, tensor in own.items())
    assert all(not torch.equal(now[name], tensor) for name, tensor in moving.items())


def test_a_layer_can_hold_the_adapters_of_two_changes() -> None:
    network = network_of("transformer", **KINDS["transformer"], clock=Clock())
    Adapters(width=3).apply(network)
    PfeifferAdapters(width=5).apply(network)
    assert network.layers[0].around["inner"].bottleneck.down.out_features == 5
    assert network.layers[0].around["inner"].place.bottleneck.down.out_features == 3
    assert network(want=frozenset({"hidden"}), tokens=torch.zeros(1, 3, dtype=torch.long))["hidden"].shape == (1, 3, 8)


def test_a_standard_deviation_draws_both_maps() -> None:
    network = network_of("transformer", **KINDS["transformer"], clock=Clock())
    Adapters(width=64, std=0.001).apply(network)
    up = network.layers[0].around["attention"].bottleneck.up.requires_grad_(False)
    assert 0.0005 < float(up.weight.std()) < 0.001 and float(up.weight.abs().max()) <= 0.002
    assert not bool(up.bias.any())
