"""Layers that take the place of groups of layers: coins, outputs, gradients, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.changes.change import Shape
from cloze.changes.replace_layers import Predecessors, ReplaceLayers
from cloze.errors import CheckpointError
from cloze.networks.clock import Clock
from cloze.training.schedule.schedules import LinearChange
from tests.making import network_of

TOKENS = torch.arange(8).reshape(2, 4)
WANT = frozenset({"hidden"})


def changed(odds: Any, *, layers: int = 2, group: int = 2) -> tuple[Any, Predecessors]:
    """A network of so many layers whose predecessor has random layers of its own."""
    torch.manual_seed(0)
    network = network_of("transformer", layers=layers, width=16, heads=2, dropout=0.0, vocab_size=9, clock=Clock(3))
    ReplaceLayers(group, odds).apply(network)
    host = network.around[-1]
    for parameter in host.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network, host


def test_without_training_only_the_new_layers_are_used() -> None:
    network, host = changed(0.0)
    before = network.eval()(want=WANT, tokens=TOKENS)["hidden"]
    for parameter in host.parameters():
        torch.nn.init.zeros_(parameter)
    assert torch.equal(network(want=WANT, tokens=TOKENS)["hidden"], before)


@pytest.mark.parametrize("odds", [0.0, 1.0])
def test_in_training_the_odds_say_which_layers_are_used(odds: float) -> None:
    network, host = changed(odds)
    x = network.embeddings(TOKENS, None, None, None, None, None)
    given = network.layer_inputs(TOKENS, position_ids=None, order="open", block=None, past=0)[0]
    for layer in network.layers if odds else host.layers:
        x = layer(x, given)
    torch.testing.assert_close(network.train()(want=WANT, tokens=TOKENS)["hidden"], x)


def test_gradients_pass_through_the_predecessor_and_move_the_new_layers_alone() -> None:
    network, host = changed(0.5)
    used = {step for step in range(20) for number in (0, 1) if _at(network, step) and host.takes_over(number)}
    step = next(step for step in sorted(used) if _at(network, step) and not host.takes_over(1) and host.takes_over(0))
    _at(network, step)
    network.train()(want=WANT, tokens=TOKENS)["hidden"].square().sum().backward()
    assert network.layers[0].outer.weight.grad.abs().sum() > 0  # through the group that stands in for layer 1
    assert not network.layers[1].outer.weight.grad.any()
    trained = {name.split(".")[0] for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert trained == {"layers"} and all(parameter.grad is None for parameter in host.parameters())


def _at(network: Any, step: int) -> bool:
    network.clock.set(step=step)
    return True


def test_a_layer_is_used_in_the_share_of_the_steps_that_the_odds_say_and_whole_groups_are_replaced() -> None:
    network, host = changed(LinearChange(0.3, 1.0, until=0.5))
    for share, expected in ((0.0, 0.3), (0.25, 0.65), (0.5, 1.0), (0.9, 1.0)):
        network.clock.set(share=share)
        found = [host.takes_over(number) for step in range(1000) if _at(network, step) for number in (0, 1)]
        assert sum(found) / len(found) == pytest.approx(expected, abs=0.03)
    assert len(host.layers) == 4


def test_layers_that_equal_their_group_make_the_loss_independent_of_coins() -> None:
    network, host = changed(0.5, group=1)
    for own, old in zip(network.layers, host.layers, strict=True):
        old.load_state_dict(own.state_dict())
    found = [network.train()(want=WANT, tokens=TOKENS)["hidden"] for step in range(4) if _at(network, step)]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


@pytest.mark.parametrize("arguments", [{"attention": {"band": {"width": 4}}}, {"positions": {"rotary": {"skip_every": 4}}}])
def test_layers_that_see_other_things_by_their_number_are_refused(arguments: dict[str, Any]) -> None:
    shape = Shape("main", "transformer", {"layers": 8, "width": 16, "heads": 2, **arguments})
    with pytest.raises(CheckpointError, match="whose layers have weights of their own and see the same tokens and positions"):
        ReplaceLayers().shape(shape)


def test_a_network_without_a_stack_of_plain_layers_is_refused() -> None:
    lstm = network_of("lstm", layers=2, width=8, vocab_size=9, clock=Clock())
    with pytest.raises(CheckpointError, match="replace_layers: LSTM is not a Transformer whose layers have weights of their own"):
        ReplaceLayers().apply(lstm)
