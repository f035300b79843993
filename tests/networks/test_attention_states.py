"""States of attention on request, and gates of heads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.blocks.attention import STATES
from cloze.networks.network import TokenSequence
from tests.making import network_of

SIZE: dict[str, Any] = {"layers": 2, "width": 12, "heads": 3, "vocab_size": 20, "dropout": 0.0}
MAKERS: dict[str, Any] = {
    "bert": lambda: network_of("transformer", **SIZE, clock=Clock()),
    "rotary": lambda: network_of("transformer", **SIZE, positions="rotary", norm="pre", feed_forward="gated", clock=Clock()),
    "functional": lambda: network_of("transformer", **SIZE, positions="functional", clock=Clock()),
    "t5": lambda: network_of("encoder_decoder", **SIZE, positions="buckets", norm="pre", initial="t5", clock=Clock(),
        **{"attention.scaled": False}),
    "xl": lambda: network_of("transformer_xl", **SIZE, clock=Clock(), **{"memory.size": 4}),
    "xlnet": lambda: network_of("two_stream", **SIZE, clock=Clock()),
    "zen": lambda: network_of("zen", **SIZE, ngram_layers=1, tables={"ngrams": SimpleNamespace(size=4)}, clock=Clock()),
}  # fmt: skip
HIDDEN = frozenset({"hidden"})


def build(name: str) -> Any:
    torch.manual_seed(0)
    network = MAKERS[name]().double()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


def ids(rows: int = 2, length: int = 5) -> Tensor:
    return torch.randint(0, 20, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MAKERS)
def test_states_have_their_shapes_and_asking_for_them_changes_nothing(name: str) -> None:
    network = build(name)
    plain = network(want=HIDDEN, tokens=ids())
    states = network(want=HIDDEN | set(STATES), tokens=ids())
    assert plain.keys() == HIDDEN and states.keys() == HIDDEN | set(STATES) and set(STATES) < network.gives.keys()
    torch.testing.assert_close(states["hidden"], plain["hidden"])
    assert states["attention"].shape == states["scores"].shape == (2, 2, 3, 5, 5)
    assert states["queries"].shape == states["keys"].shape == states["values"].shape == (2, 2, 3, 5, 4)
    if name in ("bert", "rotary", "zen"):  # nothing is added to the scores
        torch.testing.assert_close(states["scores"], states["content"] @ states["keys"].transpose(-2, -1))
    if name == "t5":  # its scores have no scale, and what is added is the same for all texts
        torch.testing.assert_close(states["content"], states["queries"])
        added = states["scores"] - states["content"] @ states["keys"].transpose(-2, -1)
        torch.testing.assert_close(added, added[:, :1].expand_as(added))
    if name in ("xl", "xlnet"):  # the bias of the content is part of the products
        assert not torch.allclose(states["content"], states["queries"] / 2)
    torch.testing.assert_close(states["attention"].sum(-1), torch.ones(2, 2, 3, 5, dtype=torch.double))


def test_a_causal_network_attends_to_nothing_that_follows_and_scores_are_those_of_queries_and_keys() -> None:
    states = build("bert")(want=frozenset(STATES), tokens=ids(), order="left_to_right")
    assert states["attention"].triu(1).eq(0).all() and states["attention"].tril().ne(0).sum() == 2 * 2 * 3 * 15
    torch.testing.assert_close(states["scores"], states["queries"] @ states["keys"].transpose(-2, -1) / 2)


def test_a_decoder_gives_its_own_attention_and_that_to_the_encoder() -> None:
    network, target = build("t5"), ids(length=3)
    want = frozenset({"attention", "decoder_attention", "crossing_attention", "crossing_keys"})
    block = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    states = network(want=want, tokens=ids(), decoder=TokenSequence(target), block=block)
    assert states.keys() == want and states["decoder_attention"].shape == (2, 2, 3, 3, 3)
    assert states["crossing_attention"].shape == (2, 2, 3, 3, 5) and states["crossing_keys"].shape == (2, 2, 3, 5, 4)
    assert states["crossing_attention"][:, 1, :, :, 3:].eq(0).all()


def test_remembered_tokens_stand_before_the_others() -> None:
    network = build("xl")
    carry = network(want=frozenset({"carry"}), tokens=ids())["carry"]
    states = network(want=frozenset({"attention", "keys"}), tokens=ids(), carry=carry)
    assert states["attention"].shape == (2, 2, 3, 5, 9) and states["keys"].shape == (2, 2, 3, 9, 4)


@pytest.mark.parametrize("name", MAKERS)
def test_gates_of_ones_change_nothing_and_a_gate_of_zero_removes_its_head(name: str) -> None:
    network, tokens = build(name), ids()
    plain = network(want=HIDDEN, tokens=tokens)["hidden"]
    for shape in ((2, 3), (2, 2, 3)):
        torch.testing.assert_close(network(want=HIDDEN, tokens=tokens, gates=torch.ones(shape).double())["hidden"], plain)
    gates = torch.ones(2, 3, dtype=torch.double)
    gates[1, 2] = 0.0
    closed = network(want=HIDDEN, tokens=tokens, gates=gates)["hidden"]
    layers = network.encoder.layers if name == "t5" else network.layers
    with torch.no_grad():
        layers[1].attention.out.weight[:, 8:] = 0.0
    torch.testing.assert_close(closed, network(want=HIDDEN, tokens=tokens)["hidden"])
    assert not torch.allclose(closed, plain)


@pytest.mark.parametrize("name", MAKERS)
def test_the_gradient_of_a_gate_is_the_finite_difference(name: str) -> None:
    network, gates = build(name), torch.ones(2, 2, 3, dtype=torch.double, requires_grad=True)

    def loss(gates: Tensor) -> Tensor:
        return network(want=HIDDEN, tokens=ids(), gates=gates)["hidden"].square().sum()

    (gradient,) = torch.autograd.grad(loss(gates), gates)
    step = torch.zeros(2, 2, 3, dtype=torch.double)
    step[1, 0, 2] = step[0, 1, 1] = 1e-5
    difference = (loss(gates.detach() + step) - loss(gates.detach() - step)) / 2e-5
    torch.testing.assert_close((gradient * step).sum() / 1e-5, difference, rtol=1e-5, atol=1e-6)


def test_gates_per_example_give_the_gradient_of_each_example_in_one_pass() -> None:
    network, gates = build("bert"), torch.ones(2, 2, 3, dtype=torch.double, requires_grad=True)
    (together,) = torch.autograd.grad(network(want=HIDDEN, tokens=ids(), gates=gates)["hidden"].sin().sum(), gates)
    for row in range(2):
        one = torch.ones(2, 3, dtype=torch.double, requires_grad=True)
        (alone,) = torch.autograd.grad(network(want=HIDDEN, tokens=ids()[[row]], gates=one)["hidden"].sin().sum(), one)
        torch.testing.assert_close(together[:, row], alone)


def test_as_many_gates_as_layers_are_expected() -> None:
    with pytest.raises(RecipeError, match="N = 2 layers"):
        build("bert")(want=HIDDEN, tokens=ids(), gates=torch.ones(3, 3))


def test_gates_of_a_decoder_close_its_heads_and_those_to_the_encoder() -> None:
    network, want = build("t5"), frozenset({"decoder_hidden"})
    given = {"tokens": ids(), "decoder": TokenSequence(ids(length=3))}
    plain = network(want=want, **given)["decoder_hidden"]
    closed = torch.zeros(2, 3, dtype=torch.double)
    for name, part in (("decoder_gates", "attention"), ("crossing_gates", "crossing")):
        found = network(want=want, **given, **{name: closed})["decoder_hidden"]
        kept = network.state_dict()
        kept = {key: value.clone() for key, value in kept.items()}
        with torch.no_grad():
            for layer in network.decoder.layers:
                getattr(layer, part).out.weight.zero_()
        torch.testing.assert_close(found, network(want=want, **given)["decoder_hidden"])
        assert not torch.allclose(found, plain)
        network.load_state_dict(kept)


@pytest.mark.parametrize("shape", [(2, 3), (2, 2, 3)])
def test_a_gate_of_two_streams_closes_its_head_in_both(shape: tuple[int, ...]) -> None:
    network, want = build("xlnet"), frozenset({"query"})
    order = torch.tensor([[0, 2, 1, 4, 3], [4, 3, 2, 1, 0]])
    plain = network(want=want, tokens=ids(), order=order)["query"]
    gates = torch.ones(shape, dtype=torch.double)
    gates[1, ..., 2] = 0.0
    closed = network(want=want, tokens=ids(), order=order, gates=gates)["query"]
    with torch.no_grad():
        network.layers[1].attention.out.weight[:, 8:] = 0.0
    torch.testing.assert_close(closed, network(want=want, tokens=ids(), order=order)["query"])
    assert not torch.allclose(closed, plain)


def test_a_closed_head_is_a_pruned_head_behind_a_norm_too() -> None:
    torch.manual_seed(0)
    network = network_of("transformer", **SIZE, clock=Clock(), **{"attention.norm": True}).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    gates = torch.ones(2, 3, dtype=torch.double)
    gates[0, 1] = 0.0
    closed = network(want=HIDDEN, tokens=ids(), gates=gates)["hidden"]
    rows = network(want=HIDDEN, tokens=ids(), gates=gates[:, None].expand(2, 2, 3))["hidden"]
    with torch.no_grad():
        network.layers[0].attention.out.weight[:, 4:8] = 0.0  # the columns that read the head
    pruned = network(want=HIDDEN, tokens=ids())["hidden"]
    torch.testing.assert_close(closed, pruned)
    torch.testing.assert_close(rows, pruned)
