"""Heads that read a combination of the layers of a frozen network."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.changes import Features
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.network import state_width
from tests.making import network_of

WANT = frozenset({"hidden", "summary", "layers"})
TOKENS = torch.arange(10).view(2, 5)


def states(network: Any) -> dict[str, torch.Tensor]:
    return dict(network(want=WANT, tokens=TOKENS))


def made(change: Features | None = None) -> Any:
    torch.manual_seed(0)
    network: Any = network_of(
        "transformer", **{"layers": 3, "width": 8, "heads": 2, "positions.max_length": 16, "dropout": 0.5}, vocab_size=20,
        clock=Clock(),
    )
    if change is not None:
        change.apply(network)
    return network


def test_the_mix_begins_as_the_mean_of_all_layers_and_a_large_weight_gives_one_of_them() -> None:
    network, before = made(Features()), states(made().eval())["layers"]
    found = states(network)
    torch.testing.assert_close(found["hidden"], before.mean(0))
    torch.testing.assert_close(found["summary"], before.mean(0)[:, 0])
    assert network.training and torch.equal(found["layers"], before)  # dropout is off
    with torch.no_grad():
        network.outside[0].combination.weights[1] = 100.0
    torch.testing.assert_close(states(network)["hidden"], before[1])
    assert {name for name, p in network.named_parameters() if p.requires_grad} == {
        "outside.0.combination.weights", "outside.0.combination.gamma"
    }


def test_the_last_layers_side_by_side_are_as_wide_as_heads_are_told() -> None:
    network, before = made(Features(use=(-2, -1), combine="concatenate")), states(made().eval())["layers"]
    assert torch.equal(states(network)["hidden"], torch.cat([before[2], before[3]], dim=-1))
    assert state_width(network, {}) == state_width(network, {"hidden": "summary"}) == 16
    assert state_width(network, {"layers": "layers"}) == 8 == network.width


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"features: use: \[4\]. Expected numbers from 0, the embeddings, to 3, the top layer"):
        made(Features(use=(4,)))
