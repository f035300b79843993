"""Fewer heads of keys and values, heads of their own width, norms of queries and keys, scaled rotations: against formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.changes.adapters import AdapterBottleneck, AfterResidual
from cloze.changes.prefix import Prefix
from cloze.errors import RecipeError
from cloze.networks import Clock, Transformer
from cloze.networks.blocks.positions.scaling import LinearScaling, LlamaScaling, scaled
from cloze.networks.blocks.stack import Cache
from cloze.recipe.size import exported_numbers
from tests.making import network_of

HIDDEN = frozenset({"hidden"})
LLAMA: dict[str, Any] = {
    "norm": "pre", "norm.kind": "rms", "feed_forward": "gated", "feed_forward.activation": "silu", "positions": "rotary",
    "attention.biases": False, "feed_forward.biases": False, "attention.key_value_heads": 2, "attention.head_width": 6,
    "attention.query_key_norm": "head",
}  # fmt: skip


def build(**changed: Any) -> Transformer:
    arguments = {"layers": 2, "width": 16, "heads": 4, "positions.max_length": 32, "dropout": 0.0, "initial.std": 0.4}
    torch.manual_seed(1)
    return network_of("transformer", **{**arguments, **changed}, vocab_size=13, clock=Clock(3)).double()


def tokens(rows: int = 2, length: int = 7) -> Tensor:
    return torch.randint(0, 13, (rows, length), generator=torch.Generator().manual_seed(0))


def unshared(network: Transformer, **changed: Any) -> Transformer:
    """A network with a head of keys and values for each head of queries, equal to that of its group."""
    other = build(**{**changed, "attention.key_value_heads": None})
    state = dict(network.state_dict())
    for number, layer in enumerate(network.layers):
        attention = layer.attention
        repeated = [
            part.unflatten(0, (attention.key_value_heads, -1)).repeat_interleave(2, 0).flatten(0, 1)
            for part in attention.memory.weight.chunk(2)
        ]
        lead = f"layers.{number}.attention."
        del state[f"{lead}query.weight"], state[f"{lead}memory.weight"]
        state[f"{lead}projections.weight"] = torch.cat([attention.query.weight, *repeated])
    other.load_state_dict(state)
    return other


@pytest.mark.parametrize("changed", [
    LLAMA, {**LLAMA, "attention.query_key_norm": None, "attention.head_width": None},
    {"attention.biases": False, "attention.key_value_heads": 2}, {**LLAMA, "attention.gate": True, "attention.norm": True},
])  # fmt: skip
@pytest.mark.parametrize("training", [True, False])
def test_heads_that_share_keys_and_values_equal_heads_with_copies(changed: dict[str, Any], training: bool) -> None:
    network = build(**changed).train(training)
    other = unshared(network, **changed).train(training)
    for order in ("open", "left_to_right"):
        mine, theirs = (each(want=HIDDEN, tokens=tokens(), order=order)["hidden"] for each in (network, other))
        torch.testing.assert_close(mine, theirs)
    states = frozenset({"hidden", "keys", "values", "attention"})
    mine, theirs = (each(want=states, tokens=tokens()) for each in (network, other))
    for name in states:
        torch.testing.assert_close(mine[name], theirs[name])


def test_the_last_layer_may_compute_only_the_tokens_that_are_read() -> None:
    network, positions = build(**LLAMA).eval(), torch.tensor([2, 6, 9])
    whole = network(want=HIDDEN, tokens=tokens(), order="left_to_right")["hidden"].flatten(0, 1)
    read = network(want=HIDDEN, tokens=tokens(), order="left_to_right", positions=positions)["hidden"].flatten(0, 1)
    torch.testing.assert_close(read[positions], whole[positions])
    assert not read[3].any()


@pytest.mark.parametrize("which", ["head", "all"])
def test_queries_and_keys_are_normed_by_head_or_together(which: str) -> None:
    network = build(**{**LLAMA, "attention.query_key_norm": which, "positions": "none", "layers": 1})
    attention = network.layers[0].attention
    with torch.no_grad():
        attention.query_norm.weight.uniform_(0.5, 2.0), attention.key_norm.weight.uniform_(0.5, 2.0)
    states = network(want=frozenset({"queries", "keys", "layers"}), tokens=tokens())
    x = network.layers[0].attention_norm(states["layers"][0])
    query, key = attention.query(x), attention.memory(x)[..., :12]
    split = (lambda states: states) if which == "all" else (lambda states: states.unflatten(-1, (-1, 6)))
    normed = [
        split(state) / (split(state).square().mean(-1, keepdim=True) + 1e-12).sqrt() * norm.weight
        for state, norm in ((query, attention.query_norm), (key, attention.key_norm))
    ]
    heads = [state.reshape(2, 7, -1, 6).transpose(1, 2) for state in normed]
    torch.testing.assert_close(states["queries"][0], heads[0])
    torch.testing.assert_close(states["keys"][0], heads[1].repeat_interleave(2, 1))


def test_every_parameter_receives_a_gradient_and_layers_share_them() -> None:
    network = build(**LLAMA, **{"share.weights": "attention"})
    hidden = network(want=HIDDEN, tokens=torch.arange(13)[None])["hidden"]
    (hidden * torch.randn_like(hidden)).sum().backward()
    names = [name for name, parameter in network.named_parameters() if parameter.grad is not None and parameter.grad.any()]
    assert names == [name for name, _ in network.named_parameters()]
    assert sum("attention.query_norm" in name for name in names) == sum("attention.memory" in name for name in names) == 1


def test_the_cache_holds_the_heads_of_keys_alone_and_a_prefix_stands_before_them() -> None:
    network = build(**LLAMA)
    Prefix(tokens=3).apply(network)
    network.double()
    whole = network(want=HIDDEN, tokens=tokens(), order="left_to_right")["hidden"]
    cache = Cache(2)
    parts = [
        network(want=HIDDEN, tokens=tokens()[:, start:stop], order="left_to_right", cache=cache)["hidden"]
        for start, stop in ((0, 3), (3, 4), (4, 7))
    ]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert {tuple(tensor.shape) for layer in cache.layers for tensor in layer} == {(2, 2, 7, 6)}


def test_maps_of_keys_and_values_cost_what_they_multiply() -> None:
    grouped, whole = build(**LLAMA), build(**{**LLAMA, "attention.key_value_heads": None})
    cost, more = (each.flops({"tokens": tokens()}, want=HIDDEN) for each in (grouped, whole))
    spared = 2 * 2 * 16 * 12  # in each of two layers, of keys and values, from 16 numbers to two heads of six
    assert more - cost == 3 * 2 * 14 * spared


def test_frequencies_are_scaled_as_published() -> None:
    frequencies = 1.0 / 500000.0 ** (torch.arange(0, 64, 2) / 64)
    assert torch.equal(scaled(frequencies, LinearScaling(factor=4.0)), frequencies / 4)
    wave = 2 * math.pi / frequencies
    expected = []
    for length, frequency in zip(wave.tolist(), frequencies.tolist(), strict=True):  # llama-models, apply_scaling
        smooth = (8192 / length - 1) / (4 - 1)
        between = (1 - smooth) * frequency / 8 + smooth * frequency
        expected.append(frequency if length < 8192 / 4 else frequency / 8 if length > 8192 / 1 else between)
    torch.testing.assert_close(scaled(frequencies, LlamaScaling()), torch.tensor(expected))


def test_every_nth_layer_may_have_no_positions_and_the_first_may_see_all_tokens() -> None:
    band = {"attention.band.width": 3, "attention.band.dense_first": 3}
    inputs = build(**LLAMA, **band, **{"layers": 5, "positions.skip_every": 2})
    assert [inputs.layer_inputs.rotated(layer) for layer in range(5)] == [True, False, True, False, True]
    assert [inputs.layer_inputs.banded(layer) for layer in range(5)] == [False, False, False, True, True]
    network = build(**LLAMA, **{"positions.skip_every": 1})
    moved = network(want=HIDDEN, tokens=tokens(), position_ids=torch.arange(7)[None] * 3)["hidden"]
    assert torch.equal(moved, network(want=HIDDEN, tokens=tokens())["hidden"])


def test_silu_stands_between_the_maps() -> None:
    network, x = build(**{"feed_forward.activation": "silu", "layers": 1}), torch.randn(2, 7, 16).double()
    layer = network.layers[0]
    expected = layer.outer(F.silu(layer.inner(x)))
    torch.testing.assert_close(layer.feed_forward.between(layer, x) @ layer.outer.weight.T + layer.outer.bias, expected)


@pytest.mark.parametrize(("changed", "said"), [
    ({"attention.key_value_heads": 3}, "3 heads of keys and values cannot be shared evenly by 4 heads of queries"),
    ({"attention.key_value_heads": 2, "positions": "disentangled", "positions.buckets": 8}, "Leave key_value_heads out"),
    ({"attention.key_value_heads": 2, "initial": "normal", "initial.offsets": [-1]}, "offsets need as many heads of keys"),
    ({"positions": "rotary", "positions.scaling": "llama3", "positions.scaling.low": 4.0}, "Give a low below high"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        build(**changed)


def test_a_size_keeps_the_ratio_of_heads_where_it_can() -> None:
    arguments = {"layers": 30, "width": 576, "heads": 9, "attention": {"key_value_heads": 3}}
    fewer = {
        heads: exported_numbers(arguments, {"layers": 2, "width": 128, "heads": heads})["attention.key_value_heads"]
        for heads in (2, 4, 8, 12, 16)
    }
    assert fewer == {2: 1, 4: 1, 8: 2, 12: 4, 16: 4}


def test_a_norm_may_stand_at_the_end_of_each_branch_and_adapters_follow_the_sum() -> None:
    network = build(**{**LLAMA, "norm": "branch", "layers": 1})
    states = network(want=frozenset({"layers"}), tokens=tokens())["layers"]
    layer = network.layers[0]
    inputs = network.layer_inputs(tokens(), position_ids=None, order="open", block=None, past=0)[0]
    x = states[0] + layer.attention_norm(layer.attention(states[0], inputs))
    x = x + layer.inner_norm(layer.outer(layer.feed_forward.between(layer, x)))
    torch.testing.assert_close(network.norm(x), states[1])
    bottleneck = AdapterBottleneck(16, 2, "gelu", 0.5, layer.outer.weight)
    torch.nn.init.ones_(bottleneck.up.weight)
    layer.around["inner"] = AfterResidual(layer.place, bottleneck)
    torch.testing.assert_close(network(want=HIDDEN, tokens=tokens())["hidden"], network.norm(x + bottleneck(x)))


def test_vectors_of_tokens_may_be_scaled_by_the_root_of_their_width() -> None:
    plain, scaled_network = build(**LLAMA), build(**LLAMA, **{"embedding.scaled": True})
    mine, theirs = (each(want=frozenset({"layers"}), tokens=tokens())["layers"][0] for each in (scaled_network, plain))
    torch.testing.assert_close(mine, 4.0 * theirs)
