"""Pruned heads, zeros and rounded weights, in numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cloze.changes import LayerDropout, PruneHeads, Quantise, QuantiseActivations, Sparsify, attentions, round_weight
from cloze.changes.compressing.quantise_activations import ActivationRounding
from cloze.changes.compressing.sparsify import PruningMask
from cloze.changes.maps import chosen_maps
from cloze.errors import CheckpointError
from cloze.networks import GRU, Clock, Transformer
from cloze.networks.blocks.computed import keep_computed
from cloze.training.schedule.schedules import LinearChange
from tests.making import network_of

SHAPE: dict[str, Any] = {"layers": 2, "width": 8, "heads": 4, "positions.max_length": 16, "initial.std": 0.5, "dropout": 0.0}
TOKENS = torch.tensor([[3, 5, 7, 11, 2], [4, 4, 9, 1, 6]])


def transformer(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return network_of("transformer", **{**SHAPE, **changes}, vocab_size=20, clock=Clock()).eval()


def hidden(network: Any, **given: Any) -> torch.Tensor:
    return network(want=frozenset({"hidden"}), order="open", tokens=TOKENS, **given)["hidden"]


def sliced(network: Transformer, heads: list[tuple[int, int]]) -> Transformer:
    """The same network without the rows and columns of these heads: maps of fewer heads in that layer."""
    for number, layer in enumerate(network.layers):
        attention: Any = layer.attention
        kept = [head for head in range(attention.heads) if (number, head) not in heads]
        columns = torch.tensor([head * attention.head_width + n for head in kept for n in range(attention.head_width)])
        rows = torch.cat([part * attention.inner_width + columns for part in range(3)])
        own, out = attention.projections, attention.out
        attention.projections = nn.Linear(own.in_features, len(rows))
        attention.out = nn.Linear(len(columns), out.out_features)
        with torch.no_grad():
            attention.projections.weight.copy_(own.weight[rows])
            attention.projections.bias.copy_(own.bias[rows])
            attention.out.weight.copy_(out.weight[:, columns])
            attention.out.bias.copy_(out.bias)
        attention.heads, attention.inner_width = len(kept), len(columns)
    return network


def test_a_pruned_head_equals_a_gate_of_zero_and_maps_without_its_rows_and_columns() -> None:
    heads, gates = [(0, 1), (0, 3), (1, 2)], torch.ones(2, 4)
    for layer, head in heads:
        gates[layer, head] = 0.0
    changed = transformer()
    PruneHeads(tuple(heads)).apply(changed)
    expected = hidden(transformer(), gates=gates)
    assert (expected - hidden(transformer())).abs().max() > 0.01
    torch.testing.assert_close(hidden(changed), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(hidden(sliced(transformer(), heads)), expected, atol=1e-6, rtol=0)
    keep_computed(changed)
    assert int((changed.layers[0].attention.out.weight == 0).sum()) == 8 * 4
    torch.testing.assert_close(hidden(changed), expected, atol=1e-6, rtol=0)


def test_the_heads_of_both_stacks_of_an_encoder_decoder_are_found_by_kind() -> None:
    given = {"layers": 3, "decoder_layers": 2, "width": 8, "heads": 2, "positions.max_length": 16}
    network = network_of("encoder_decoder", **given, vocab_size=20, clock=Clock())
    assert {kind: len(found) for kind, found in attentions(network).items()} == {"attention": 3, "decoder": 2, "crossing": 2}
    PruneHeads(((1, 0),), "crossing").apply(network)
    assert int((network.decoder.layers[1].crossing.out.weight == 0).sum()) == 8 * 4
    assert bool(network.encoder.layers[1].attention.out.weight.all())


@pytest.mark.parametrize(("change", "arguments", "said"), [
    (PruneHeads(((2, 0),)), {}, r"there is no head \[2, 0\]. Expected layers 0 to 1 with heads 0 to 3"),
    (PruneHeads(((0, 0),), "crossing"), {}, "Transformer has no attention 'crossing'. It has: attention."),
    (PruneHeads(((0, 0),)), {"share.weights": "all"}, "a head of one layer is a head of all.\n  Use sparsify "),
    (Quantise(1), {}, "1 bits; expected 2 to 16"),
    (Quantise(4, groups=99), {}, r"99 groups are more than the rows of projections \(24\)"),
    (Quantise(4, on=("query",)), {}, "on: names whole maps"),
    (Quantise((2, 4, 8)), {}, "bits for 3 layers; Transformer has 2"),
    (Quantise((2, 1)), {}, "1 bits; expected 2 to 16"),
    (Quantise(8, embeddings=17), {}, "17 bits; expected 2 to 16"),
    (QuantiseActivations(1), {}, "1 bits; expected 2 to 16"),
    (QuantiseActivations(on=("out",)), {}, "outputs: no chosen map is called key, query"),
])  # fmt: skip
def test_what_cannot_be_compressed_is_refused(change: Any, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        change.apply(transformer(**arguments))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("groups", [1, 3, 7])
def test_a_rounded_weight_is_off_by_half_a_step_at_most_in_every_group(bits: int, symmetric: bool, groups: int) -> None:
    weight = torch.randn(7, 30, generator=torch.Generator().manual_seed(0))
    found = round_weight(weight, bits=bits, groups=groups, symmetric=symmetric)
    most = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    assert found.integers.min() >= (-most if symmetric else 0) and found.integers.max() == most
    assert torch.equal(found.integers, found.integers.round()) and len(found.step.unique()) == groups
    assert bool(((weight - found.floats).abs() <= found.step / 2 * (1 + 1e-5)).all())
    again = round_weight(found.floats, bits=bits, groups=groups, symmetric=symmetric)
    assert torch.equal(again.integers, found.integers)
    if symmetric:
        assert torch.equal(round_weight(-weight, bits=bits, groups=groups).integers, -found.integers)
        nearest = weight.abs().max() / most
        assert groups > 1 or float(found.step[0]) == pytest.approx(float(nearest))


def test_a_scale_of_two_gives_the_known_integers_and_a_constant_group_its_value() -> None:
    weight = torch.tensor([[63.5, -10.0, 0.24, 0.26], [7.0, 7.0, 7.0, 7.0]])
    assert round_weight(weight[:1], bits=8).integers.tolist() == [[127.0, -20.0, 0.0, 1.0]]
    constant = round_weight(weight, bits=3, groups=2, symmetric=False)
    assert constant.floats[1].tolist() == [7.0] * 4 and not constant.floats.isnan().any()
    assert round_weight(torch.zeros(2, 2), bits=8).floats.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_product_with_rounded_weights_equals_the_product_of_integers() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(6, 10, generator=generator), torch.randn(4, 10, generator=generator)
    w, a = round_weight(weight, bits=8), round_weight(x, bits=8)
    integers = (a.integers.int() @ w.integers.int().T).float()
    assert torch.equal(a.integers @ w.integers.T, integers)  # floats hold these products exactly
    torch.testing.assert_close(nn.functional.linear(a.floats, w.floats), integers * a.step[0] * w.step[0], rtol=1e-6, atol=1e-6)


def test_rounding_lets_gradients_pass_and_reaches_every_map_and_the_table() -> None:
    network = transformer()
    Quantise(3).apply(network)
    projections: Any = network.layers[0].attention.projections
    rounding = projections.changes["quantise"]
    assert rounding.groups == 3 and len(projections.weight[:8].unique()) <= 7  # queries have a range of their own
    assert len(network.embeddings.tokens.weight.unique()) <= 7
    own = next(iter(network.layers[1].outer.parameters()))
    network.layers[1].outer.weight.mul(3.0).sum().backward()
    assert torch.equal(own.grad, torch.full_like(own, 3.0))


def test_layers_and_the_table_of_tokens_may_have_different_bits_and_more_groups_are_at_least_as_exact() -> None:
    network, plain = transformer(), transformer()
    Quantise((2, 3), embeddings=4).apply(network)
    assert [len(layer.outer.weight.unique()) for layer in network.layers] == [3, 7]
    assert 7 < len(network.embeddings.tokens.weight.unique()) <= 15
    weight, bound = plain.layers[0].inner.weight, []
    for groups in (1, 2, 4, 16):
        found = round_weight(weight, bits=2, groups=groups, symmetric=False)
        bound.append(found.step.expand(-1, 8) / 2)
        assert bool(((weight - found.floats).abs() <= bound[-1] * (1 + 1e-5)).all())
    assert all(bool((b <= a).all()) for a, b in zip(bound, bound[1:], strict=False))  # nested groups


def rounding(bits: int = 8, largest: float = 0.0, average: float = 0.9) -> ActivationRounding:
    made = ActivationRounding(bits=bits, average=average)
    made.range.fill_(largest)
    return made


def test_rounded_activations_are_known_integers_odd_idempotent_and_off_by_half_a_step() -> None:
    scaled = rounding(largest=63.5)  # a step of one half
    assert scaled(torch.tensor([10.0, -10.0, 0.24, 0.26, 70.0])).tolist() == [10.0, -10.0, 0.0, 0.5, 63.5]
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    worst = []
    for bits in (3, 4, 8):
        own = rounding(bits, float(x.abs().max()))
        step = float(own.range) / (2 ** (bits - 1) - 1)
        assert torch.equal(own(-x), -own(x)) and torch.equal(own(own(x)), own(x))
        worst.append(float((own(x) - x).abs().max()))
        assert worst[-1] <= step / 2 * (1 + 1e-5)
    assert worst[0] > 1.7 * worst[1] > 17 * worst[2]


def test_the_range_of_activations_is_an_exponential_average_and_rounds_nothing_before_it_is_known() -> None:
    own, x = rounding(average=0.75), torch.tensor([[0.3, -2.0]], requires_grad=True)
    assert torch.equal(own.train()(x), x) and float(own.seen) == 2.0
    own(torch.tensor([[-5.0]]))
    assert float(own.seen) == 5.0  # the largest of all micro-batches
    for largest, expected in ((5.0, 5.0), (1.0, 4.0), (8.0, 5.0)):
        own.learn(largest)
        assert float(own.range) == expected
    seen = float(own.seen)
    made = own.eval()(7.0 * x)
    assert float(made.detach().min()) == -5.0 and float(own.seen) == seen
    made.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[7.0, 7.0]]  # also where the value is clamped


def test_a_map_with_rounded_weights_and_activations_computes_a_product_of_integers() -> None:
    network = transformer()
    Quantise(8).apply(network)
    QuantiseActivations(8).apply(network)
    network.train()
    hidden(network)
    outer: Any = network.layers[0].outer
    for module in network.modules():
        if isinstance(module, ActivationRounding):
            assert float(module.seen) > 0
            module.learn(float(module.seen))
    network.eval()
    around, x = outer.around["quantise_activations"], torch.randn(6, outer.in_features)
    own = next(iter(outer.parameters()))
    w, step = round_weight(own.detach(), bits=8), around.input.range / 127
    read = (x / step).round().clamp(-127, 127)
    expected = (read.int() @ w.integers.int().T).float() * step * w.step[0] + outer.bias
    torch.testing.assert_close(outer(x), expected, rtol=1e-6, atol=1e-6)
    projections: Any = network.layers[1].attention.projections
    made = projections(torch.randn(64, 8)).unflatten(-1, (3, 8))
    assert len(made[:, 0].unique()) <= 255 and len(made[:, 1].unique()) <= 255 < len(made[:, 2].unique())
    assert hidden(network).isfinite().all()


def test_a_scheduled_share_grows_and_what_is_pruned_stays_pruned() -> None:
    network, clock = transformer().train(), None
    Sparsify(LinearChange(0.0, 0.5, until=0.5), on=("outer",)).apply(network)  # type: ignore[arg-type]
    outer: Any = network.layers[0].outer
    mask = outer.changes["sparsify"]
    clock, own, zeros, before = mask.clock, next(iter(outer.parameters())), [], None
    for share in (0.0, 0.2, 0.25, 0.5, 0.9):
        clock.set(share=share)
        found = outer.weight == 0
        assert before is None or bool(found[before].all())
        before, zeros = found, [*zeros, int(found.sum())]
        with torch.no_grad():
            own.add_(torch.randn(own.shape))  # what the optimizer does to pruned weights, too
    count = own.numel()
    assert zeros == [int(share * count) for share in (0.0, 0.2, 0.25, 0.5, 0.5)]
    network.eval()
    clock.set(share=0.0)
    assert int((outer.weight == 0).sum()) == count // 2


def test_a_scheduled_share_grows_in_a_network_without_dropout() -> None:
    clock = Clock()
    network = GRU(width=8, vocab_size=9, clock=clock).train()
    Sparsify(LinearChange(0.0, 0.5)).apply(network)  # type: ignore[arg-type]
    clock.set(share=1.0)
    weight = network.layers[0].input.weight
    assert int((weight == 0).sum()) == weight.numel() // 2


def test_a_scheduled_share_is_refused_where_no_clock_runs() -> None:
    class Mine(nn.Sequential):
        unread: tuple[str, ...] = ()

        def depth_groups(self) -> list[nn.Module]:
            return [self[0], self[1]]

    with pytest.raises(CheckpointError, match=r"Mine has no clock.*\n  Write a number, such as share: 0\.5\."):
        Sparsify(LinearChange(0.0, 0.5)).apply(Mine(nn.Embedding(9, 8), nn.Linear(8, 8)))  # type: ignore[arg-type]


def test_masks_are_of_the_order_of_magnitudes_alone_nested_and_random_where_asked() -> None:
    weight = torch.randn(9, 11, generator=torch.Generator().manual_seed(0))

    def kept(share: float, by: Any = "magnitude", times: float = 1.0) -> torch.Tensor:
        return PruningMask(weight, [slice(None)], share, by, clock=None, seed=5).of(weight * times)

    assert torch.equal(kept(0.3), kept(0.3, times=-7.0)) and bool(kept(0.0).all())
    for by in ("magnitude", "random"):
        assert bool(kept(0.2, by)[kept(0.6, by)].all()) and int((~kept(0.6, by)).sum()) == int(0.6 * 99)
    assert not torch.equal(kept(0.5), kept(0.5, "random"))


def test_the_table_of_tokens_is_pruned_where_asked_and_the_tied_head_reads_the_zeros() -> None:
    network = transformer()
    Sparsify(0.5, embeddings=True).apply(network)
    table: Any = network.embeddings.tokens
    mask = table.changes["sparsify"]
    mask.kept.copy_(mask.of(table.weight))
    assert int((network.token_tables["tokens"].weight == 0).sum()) == table.weight.numel() // 2
    keep_computed(network)
    assert type(network.embeddings.tokens) is nn.Embedding and int((network.embeddings.tokens.weight == 0).sum()) == 80


def test_queries_and_keys_that_share_a_map_are_found_and_rounded_apart() -> None:
    shape = {"layers": 1, "width": 8, "heads": 2, "bottleneck.width": 4, "feed_forward.inner": 6, "positions.max_length": 16}
    network = network_of("mobile_transformer", **shape, vocab_size=20, clock=Clock())
    stacked = network.layers[0].attention.query_key
    assert chosen_maps(network, ["query", "key", "value"], of="lora") == [
        (stacked, slice(0, 4)), (stacked, slice(4, 8)), (network.layers[0].attention.value, slice(None))
    ]
    with torch.no_grad():
        stacked.weight[4:] *= 100
    expected = torch.cat([round_weight(half, bits=8, groups=1).floats for half in stacked.weight.detach().chunk(2)])
    Quantise(8).apply(network)
    QuantiseActivations(8).apply(network)
    assert torch.equal(stacked.weight, expected)
    assert list(stacked.around["quantise_activations"].output) == ["query", "key"]


def test_layers_are_skipped_at_their_rate_in_training_alone_without_scaling() -> None:
    network, plain = transformer(layers=8), transformer(layers=8)
    LayerDropout(0.25).apply(network)
    skips: Any = network.around[0]
    assert torch.equal(hidden(network), hidden(plain)) and network.state_dict().keys() == plain.state_dict().keys()
    network.train()
    depths = []
    for step in range(400):
        skips.clock.set(step=step)
        skipped = [skips.skips(number) for number in range(8)]
        depths.append(8 - sum(skipped))
        if step < 5:
            x = plain.embeddings(TOKENS)
            for layer, left_out in zip(plain.layers, skipped, strict=True):
                x = x if left_out else _layer(plain, layer, x)
            torch.testing.assert_close(hidden(network), x, atol=1e-5, rtol=0)
    assert sum(depths) / 400 == pytest.approx(8 * 0.75, abs=4 * (8 * 0.25 * 0.75 / 400) ** 0.5)
    assert len(set(depths)) > 4
    hidden(network).sum().backward()
    assert skipped[0] or skipped[-1]  # a skipped layer gives zeros, so that ranks can exchange the gradients of all
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.layers.parameters())
    own = [bool(layer.outer.weight.grad.any()) for layer in network.layers]
    assert own == [not left_out for left_out in skipped]


def test_a_layer_is_skipped_without_waiting_for_the_device_of_the_clock() -> None:
    network = transformer(layers=8)
    LayerDropout(0.5).apply(network)
    expected = [network.around[0].skips(number) for number in range(8)]
    network.clock.to("meta")
    assert [network.around[0].skips(number) for number in range(8)] == expected and len(set(expected)) == 2


def _layer(network: Any, layer: Any, x: torch.Tensor) -> torch.Tensor:
    from cloze.networks.blocks.attention import AttentionInputs
    from cloze.networks.blocks.visibility import Visibility

    made: torch.Tensor = layer(x, AttentionInputs(Visibility("all")))
    return made
