"""What each change does to a network, in numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.changes import KeepLayers, LoRA, MoreSegments, Shape, Sparsify, Transition
from cloze.errors import CheckpointError
from cloze.networks import Clock, Transformer
from cloze.networks.blocks.computed import ComputedLinear, keep_computed
from tests.making import network_of

SHAPE: dict[str, Any] = {"layers": 4, "width": 8, "heads": 2, "positions.max_length": 16}


def transformer(**changes: Any) -> Transformer:
    torch.manual_seed(0)
    return network_of("transformer", **{**SHAPE, **changes}, vocab_size=20, clock=Clock())


def transition(old: Any, new: Any, **arguments: Any) -> Transition:
    tokenizer: Any = None
    shape = Shape("FOLDER", "transformer", {**SHAPE, **arguments})
    own = {**SHAPE, **arguments, "layers": len(new.layers)}
    return Transition(shape, old, new, own, tokenizer, tokenizer)


def test_lora_on_queries_and_values_leaves_the_rows_of_keys_alone() -> None:
    network = transformer()
    before = network.layers[1].attention.projections.weight.detach().clone()
    LoRA(rank=3, alpha=6.0, on=("query", "value")).apply(network)
    changed: Any = network.layers[1].attention.projections
    assert torch.equal(changed.weight, before)  # B is zero
    updates = list(changed.changes.values())
    with torch.no_grad():
        for update in updates:
            update.up.fill_(0.5)
    assert torch.equal(changed.weight[8:16], before[8:16])
    expected = before[:8] + 6.0 / 3 * torch.full((8, 3), 0.5) @ updates[0].down
    torch.testing.assert_close(changed.weight[:8], expected)
    assert not torch.equal(changed.weight[16:], before[16:])
    assert {name for name, p in network.named_parameters() if p.requires_grad} == {
        f"layers.{n}.attention.projections.changes.{name}.{map_}"
        for n in range(4) for name in ("lora", "lora_2") for map_ in ("down", "up")
    }


def test_layers_that_share_a_map_share_its_update() -> None:
    network = transformer(**{"share.weights": "all"})
    LoRA(rank=2, on=("outer",)).apply(network)
    assert len({id(layer.outer) for layer in network.layers}) == 1
    assert isinstance(network.layers[3].outer, ComputedLinear) and len(network.layers[3].outer.changes) == 1


def test_sparsify_prunes_the_smallest_weights_of_each_map_and_only_these() -> None:
    there, here = transformer(), transformer()
    change = Sparsify(share=0.25, on=("outer", "key"))
    change.apply(here)
    here.load_state_dict(dict(change.weights(there.state_dict(), transition(there, here))))
    for old, new in zip(there.layers, here.layers, strict=True):
        own = old.outer.weight.abs().flatten()
        assert int((new.outer.weight == 0).sum()) == 0.25 * own.numel()
        border = own.sort().values[int(0.25 * own.numel())]
        assert torch.equal(new.outer.weight, torch.where(old.outer.weight.abs() < border, 0.0, old.outer.weight))
        projections = new.attention.projections.weight
        assert int((projections[8:16] == 0).sum()) == 16 and bool(projections[:8].all()) and bool(projections[16:].all())
    keep_computed(here)
    assert type(here.layers[0].outer) is torch.nn.Linear and int((here.layers[0].outer.weight == 0).sum()) == 64


@pytest.mark.parametrize("by", ["magnitude", "random"])
def test_queries_keys_and_values_lose_their_share_each(by: Any) -> None:
    there, here = transformer(), transformer()
    change = Sparsify(share=0.5, by=by)
    change.apply(here)
    with torch.no_grad():
        for layer in there.layers:
            layer.attention.projections.weight[:8] *= 0.01  # one threshold for all three would prune every query
    here.load_state_dict(dict(change.weights(there.state_dict(), transition(there, here))))
    for layer in here.layers:
        zeros = (layer.attention.projections.weight == 0).unflatten(0, (3, 8)).sum((1, 2))
        assert zeros.tolist() == [32, 32, 32] and int((layer.attention.out.weight == 0).sum()) == 32


def test_kept_layers_keep_their_weights_under_new_numbers_with_updates_on_them() -> None:
    there, here = transformer(), transformer(layers=2)
    LoRA(rank=2).apply(there)
    LoRA(rank=2).apply(here)
    found = KeepLayers((1, 3)).weights(there.state_dict(), transition(there, here))
    here.load_state_dict(dict(found))
    for old, new in ((1, 0), (3, 1)):
        for name, tensor in there.layers[old].state_dict().items():
            assert torch.equal(here.layers[new].state_dict()[name], tensor)
    assert torch.equal(here.embeddings.tokens.weight, there.embeddings.tokens.weight)


@pytest.mark.parametrize(("layers", "arguments", "said"), [
    ((1, 4), {}, r"FOLDER: keep_layers: \[1, 4\]; expected layers from 0 to 3, in ascending order."),
    ((2, 1), {}, r"\[2, 1\]; expected layers from 0 to 3, in ascending order."),
    ((), {}, r"\[\]; expected layers from 0 to 3, in ascending order."),
    ((1, 2), {"share.weights": "all"}, "layer 1 cannot become layer 0: it has other parts or widths"),
    ((1, 2), {"norm": "pre", "norm.embedding": True, "norm.first": False}, "layer 1 cannot become layer 0: it has other parts"),
])  # fmt: skip
def test_layers_that_cannot_be_kept_are_refused(layers: tuple[int, ...], arguments: dict[str, Any], said: str) -> None:
    there, here = transformer(**arguments), transformer(**{**arguments, "layers": max(len(layers), 1)})
    with pytest.raises(CheckpointError, match=said):
        KeepLayers(layers).weights(there.state_dict(), transition(there, here, **arguments))


BANDED = {"attention": {"band": {"width": 4, "dense_every": 3}}}


@pytest.mark.parametrize(("layers", "band"), [
    ((0, 1, 4), {"width": 4, "dense_every": 3, "dense_first": None}), ((0, 3), None),
    ((1, 2), {"width": 4, "dense_every": None, "dense_first": None}),
    ((0, 1, 3, 4), {"width": 4, "dense_every": 2, "dense_first": None}),
    ((0, 3, 4), {"width": 4, "dense_every": None, "dense_first": 2}),
])  # fmt: skip
def test_kept_layers_see_the_band_or_all_tokens_as_before(layers: tuple[int, ...], band: dict[str, Any] | None) -> None:
    made = KeepLayers(layers).shape(Shape("FOLDER", "transformer", {**SHAPE, "layers": 5, **BANDED}))
    assert made["attention"]["band"] == band and made["layers"] == len(layers)


def test_kept_layers_that_no_band_describes_are_refused() -> None:
    said = r"keep_layers: \[1, 3\]: of these layers, \[3\] see all tokens, the others a\n  band"
    with pytest.raises(CheckpointError, match=said):
        KeepLayers((1, 3)).shape(Shape("FOLDER", "transformer", {**SHAPE, **BANDED}))


def test_a_written_network_whose_layers_see_something_else_is_refused() -> None:
    there, here = transformer(**{"attention.band.width": 4, "attention.band.dense_every": 3}), transformer(layers=2)
    shape = Shape("FOLDER", "transformer", {**SHAPE, **BANDED})
    tokenizer: Any = None
    with pytest.raises(CheckpointError, match="layer 1 sees a band, and layer 1 of the recipe's network would see all tokens"):
        KeepLayers((0, 1)).weights(
            there.state_dict(), Transition(shape, there, here, {**SHAPE, "layers": 2}, tokenizer, tokenizer)
        )


def test_a_network_written_with_another_depth_than_is_kept_is_refused() -> None:
    with pytest.raises(CheckpointError, match="keeps 2 layers, and the recipe's network has 3"):
        KeepLayers((0, 2)).weights({}, transition(transformer(), transformer(layers=3)))


def test_the_stacks_of_an_encoder_decoder_are_counted_through() -> None:
    given = {"layers": 3, "decoder_layers": 2, "width": 8, "heads": 2}
    made = KeepLayers((0, 2, 4)).shape(Shape("FOLDER", "encoder_decoder", given))
    assert (made["layers"], made["decoder_layers"]) == (2, 1)
    with pytest.raises(CheckpointError, match=r"keeps none of the layers 3 to 4 \(decoder_layers of encoder_decoder\)"):
        KeepLayers((0, 2)).shape(Shape("FOLDER", "encoder_decoder", given))


def test_new_segments_begin_as_copies_and_a_network_that_has_as_many_stays_as_it_is() -> None:
    there, here = transformer(segments=2), transformer(segments=4)
    change = MoreSegments(to=4, like=1)
    shape = Shape("FOLDER", "transformer", {**SHAPE, "segments": 2})
    assert change.shape(shape)["segments"] == 4 and change.shape(shape._replace(arguments={"segments": 6}))["segments"] == 6
    before = there.state_dict()
    found = change.weights(before, transition(there, here, segments=4))
    table = found["embeddings.segments.weight"]
    assert torch.equal(table, before["embeddings.segments.weight"][[0, 1, 1, 1]])
    assert all(found[name] is tensor for name, tensor in before.items() if name != "embeddings.segments.weight")
    assert all(tensor.shape == here.state_dict()[name].shape for name, tensor in found.items())
    with pytest.raises(CheckpointError, match="FOLDER: more_segments: like: 2, and the network has 2 segments, counted from 0"):
        MoreSegments(to=4, like=2).shape(shape)
