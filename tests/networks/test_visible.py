"""`visible`: which tokens of a row see each other, in the networks that take it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks import Clock
from cloze.networks.fast.switch import switched
from cloze.networks.routing import routed
from tests.making import network_of

BRANCHED, PLAIN = [1, 2, 5, 6, 3, 4], [1, 2, 3, 4]
SOFT, TEXT = [0, 1, 2, 3, 2, 3], [0, 1, 4, 5]
SEEN = torch.tensor([[[i in TEXT and j in TEXT or i in (1, 2, 3) and j in (1, 2, 3) for j in range(6)] for i in range(6)]])
CUT = torch.tensor([[[(i in TEXT) == (j in TEXT) for j in range(6)] for i in range(6)]])  # the word does not see its branch
SMALL: dict[str, Any] = {"layers": 3, "width": 16, "heads": 2, "dropout": 0.0}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("transformer", {"segments": 2}),
    "pre-norm": ("transformer", {"norm": "pre"}),
    "sinusoids": ("transformer", {"positions": "sinusoid"}),
    "rotary": ("transformer", {"positions": "rotary"}),
    "nezha": ("transformer", {"positions": "functional", "positions.limit": 4}),
    "no positions": ("transformer", {"positions": "none"}),
    "bart": ("encoder_decoder", {}),
}


def build(name: str, **changed: Any) -> Any:
    part, arguments = SYSTEMS[name]
    torch.manual_seed(2)
    network = network_of(part, **{**SMALL, **arguments, **changed}, vocab_size=9, clock=Clock(1)).eval()
    for parameter in network.parameters():
        parameter.data.normal_(0.0, 0.3)
    return network


def states(network: Any, tokens: list[list[int]], *, order: Any = "open", want: str = "layers", **fields: Tensor) -> Tensor:
    given = {} if isinstance(order, str) else {"order": order}
    batch = Batch({"tokens": torch.tensor(tokens), **given, **fields})
    with torch.no_grad():
        found: Tensor = network(want=frozenset({want}), **routed(network, batch, str(order)))[want]
    return found


def branched(network: Any, visible: Tensor = SEEN, **given: Any) -> Tensor:
    return states(network, [BRANCHED], position_ids=torch.tensor([SOFT]), visible=visible, **given)[:, 0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_branch_that_no_token_of_the_text_sees_changes_none_of_them(name: str) -> None:
    network = build(name)
    alone = states(network, [PLAIN])[:, 0]
    assert torch.allclose(branched(network, CUT)[:, TEXT], alone, atol=1e-5)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_first_token_learns_of_a_branch_through_the_word_alone_and_from_the_second_layer_on(name: str) -> None:
    network = build(name)
    alone, made = states(network, [PLAIN])[:, 0], branched(network)[:, TEXT]
    for token in (0, 2, 3):
        assert torch.allclose(made[:2, token], alone[:2, token], atol=1e-5)  # embeddings and the first layer
        assert not torch.allclose(made[2, token], alone[2, token], rtol=0, atol=1e-4)
    assert not torch.allclose(made[1, 1], alone[1, 1], rtol=0, atol=1e-4)  # the word itself: at once


def test_everything_visible_is_bert_bit_for_bit() -> None:
    network, block = build("bert"), torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    rows = [BRANCHED, [*PLAIN, 0, 0]]
    for order in ("open", "left_to_right"):
        for given in ({}, {"block": block}):
            seen = torch.ones(2, 6, 6, dtype=torch.bool)
            made = states(network, rows, order=order, visible=seen, **given)
            assert torch.equal(made, states(network, rows, order=order, **given))


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("order", ["open", "left_to_right", "by token"])
def test_fast_functions_and_plain_modules_agree(name: str, order: str) -> None:
    given: dict[str, Any] = {
        "visible": torch.cat([SEEN, torch.eye(6, dtype=torch.bool)[None]]), "position_ids": torch.tensor([SOFT, SOFT]),
        "block": torch.tensor([[1] * 6, [1] * 3 + [0] * 3]),
    }
    own: Any = torch.tensor([[0, 1, 2, 1, 0, 3]] * 2) if order == "by token" else order
    real, network = given["block"] > 0, build(name)
    fast = states(network, [BRANCHED, BRANCHED], order=own, want="hidden", **given)
    with switched(False):
        plain = states(network, [BRANCHED, BRANCHED], order=own, want="hidden", **given)
    assert torch.allclose(fast[real], plain[real], atol=1e-5)


def test_order_and_matrix_both_hold() -> None:
    network = build("bert")
    causal, made = states(network, [PLAIN], order="left_to_right")[:, 0], branched(network, order="left_to_right")
    assert torch.allclose(made[:, TEXT], causal, atol=1e-5)  # a branch stands behind its word, which does not see it
    banded = build("bert", **{"attention.band.width": 3})
    near = SEEN & (torch.arange(6)[:, None] - torch.arange(6)).abs().le(1)
    assert torch.allclose(branched(banded), branched(network, near), atol=1e-5)


def test_gradients_reach_a_branch_from_the_word_and_stop_at_other_tokens() -> None:
    network = build("bert")
    batch = Batch({"tokens": torch.tensor([BRANCHED]), "position_ids": torch.tensor([SOFT]), "visible": SEEN})
    for token, reached in ((0, [1, 2, 3, 4]), (1, [1, 2, 3, 4, 5, 6])):
        layers = network(want=frozenset({"layers"}), **routed(network, batch, "open"))["layers"]
        (gradient,) = torch.autograd.grad(layers[1, 0, token].sum(), network.embeddings.tokens.weight)
        assert gradient.abs().sum(1).nonzero().flatten().tolist() == reached
