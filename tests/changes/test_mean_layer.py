"""`change: [mean_layer]`: the top layer starts as the mean of all tokens, and learns from there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.changes import MeanLayer, Shape, Transition
from cloze.errors import CheckpointError
from cloze.networks import Clock, Transformer
from tests.making import network_of

SHAPE: dict[str, Any] = {"layers": 2, "width": 8, "heads": 2, "positions.max_length": 16, "dropout": 0.0}


def changed(change: MeanLayer, **arguments: Any) -> tuple[Transformer, Transformer]:
    """A network with random weights, and the same with the change."""
    made = []
    more = 1 if change.place == "above" else 0
    for layers in (SHAPE["layers"], SHAPE["layers"] + more):
        torch.manual_seed(0)
        made.append(network_of("transformer", **{**SHAPE, **arguments, "layers": layers}, vocab_size=20, clock=Clock()))
    with torch.no_grad():
        for parameter in made[0].parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    there, here = made
    shape, tokenizer = Shape("FOLDER", "transformer", {**SHAPE, **arguments}), Any
    assert change.shape(shape) == {**shape.arguments, "layers": SHAPE["layers"] + more}
    move = Transition(shape, there, here, shape.arguments, tokenizer, tokenizer)  # type: ignore[arg-type]
    here.load_state_dict(dict(change.weights(there.state_dict(), move)))
    return there, here


@pytest.mark.parametrize("arguments", [{}, {"positions": "rotary"}, {"attention.biases": False}, {"norm.kind": "rms"}])
def test_every_token_starts_with_the_mean_of_the_tokens_that_are_not_padding(arguments: dict[str, Any]) -> None:
    there, here = changed(MeanLayer(times=2.0), **arguments)
    tokens = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]])
    block = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    want = frozenset({"hidden", "layers"})
    before = there(want=want, tokens=tokens, block=block)["layers"][-2]
    found = here(want=want, tokens=tokens, block=block)
    torch.testing.assert_close(found["layers"][-2], before)  # the layers below are those of the checkpoint
    for row, length in enumerate((5, 3)):
        state = before[row, :length] + 2.0 * before[row, :length].mean(0)
        for _ in range(2):  # the norms behind attention and behind the feed-forward
            state = state - state.mean(-1, keepdim=True) if "norm.kind" not in arguments else state
            state = state / (state.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        torch.testing.assert_close(found["hidden"][row, :length], state, rtol=1e-4, atol=1e-5)


def test_a_mean_layer_above_the_others_reads_what_the_checkpoint_says() -> None:
    there, here = changed(MeanLayer("above"))
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    before = there(want=frozenset({"hidden"}), tokens=tokens)["hidden"][0]
    expected = torch.nn.functional.layer_norm(before + 10.0 * before.mean(0), (8,))
    torch.testing.assert_close(here(want=frozenset({"hidden"}), tokens=tokens)["hidden"][0], expected, rtol=1e-4, atol=1e-4)
    assert MeanLayer("above", times=2.0).shape(Shape("FOLDER", "transformer", {**SHAPE, "layers": 1}))["layers"] == 2


@pytest.mark.parametrize("place", ["top", "above"])
def test_what_starts_at_zero_learns(place: Any) -> None:
    _, here = changed(MeanLayer(place))
    hidden = here(want=frozenset({"hidden"}), tokens=torch.tensor([[1, 2, 3, 4]]))["hidden"]
    (hidden * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    top = here.layers[-1]
    queries = top.attention.projections.weight.grad[:8]
    assert queries.abs().min() > 0 and top.outer.weight.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"norm": "pre"}, "its norms stand before attention"), ({"share.weights": "all"}, "its layers share their weights"),
        ({"attention.band.width": 4}, "its attention is local"), ({"feed_forward": "gated"}, "not one of two maps"),
        ({"layers": 1}, "it has one layer only"),
        ({"positions": "learned_with_buckets"}, "its positions weigh tokens by their distance or change their values"),
        ({"positions": "functional", "positions.limit": 4}, "its positions weigh tokens by their distance"),
        ({"positions": "rotary", "positions.values": True}, "its positions weigh tokens by their distance or change their"),
    ],
)  # fmt: skip
def test_a_network_whose_top_layer_cannot_be_a_mean_is_refused(arguments: dict[str, Any], said: str) -> None:
    from cloze.interop.arguments import nested

    shape = Shape("FOLDER", "transformer", nested({**SHAPE, **arguments}, "transformer"))
    with pytest.raises(CheckpointError, match=f"FOLDER: mean_layer: .*{said}.*\n  Leave it out"):
        MeanLayer().shape(shape)
