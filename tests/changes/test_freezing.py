"""Freezing and rates by depth, on every kind of network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cloze.changes import (
    Chain,
    Divide,
    Factors,
    Gradual,
    Progressive,
    Sequential,
)
from cloze.errors import RecipeError
from cloze.networks import Clock, Transformer
from cloze.networks.recurrent.lstm_language_model import LSTM
from cloze.networks.static.word_vectors import WordVectors
from cloze.training.optimizers.optimizers import AdamW, BertAdam, GptAdam, Lamb
from cloze.training.schedule.freezing import Freezing, Only, parameters_by_depth, set_rate, unfreezing_of
from tests.making import network_of

V = 30


def transformer(**changes: Any) -> Transformer:
    shape = {"layers": 3, "width": 8, "heads": 2, "positions.max_length": 16, "dropout": 0.0, **changes}
    return network_of("transformer", **shape, vocab_size=V, clock=Clock())


def networks() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "transformer": transformer(),
        "pre": transformer(norm="pre"),
        "narrow": transformer(**{"embedding.width": 4}),
        "shared": transformer(**{"share.weights": "all"}),
        "transformer_xl": network_of("transformer_xl", layers=2, width=8, heads=2, dropout=0.0, vocab_size=V, clock=Clock(),
            **{"memory.size": 4}),
        "lstm": LSTM(layers=3, width=8, inner=12, vocab_size=V, clock=Clock()),
        "siatl": LSTM(layers=2, width=8, inner=12, down=True, vocab_size=V, clock=Clock()),
        "word_vectors": WordVectors(width=8, vocab_size=V, clock=Clock()),
    }


class Tuned(nn.Module):
    """A network and a head on the mean of what it gives."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.head = network, nn.Linear(network.width, 2)

    def loss(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1)
        tokens = torch.randint(4, V, (4, 6), generator=generator)
        given = {"order": "left_to_right"} if "order" in self.network.takes else {}
        hidden = self.network(want=frozenset({"hidden"}), tokens=tokens, **given)["hidden"]
        return nn.functional.cross_entropy(self.head(hidden.mean(1)), torch.tensor([0, 1, 0, 1]))


def groups_that_changed(model: Tuned, before: dict[int, torch.Tensor]) -> set[int]:
    groups = [*parameters_by_depth(model.network), list(model.head.parameters())]
    return {number for number, group in enumerate(groups) if any(not torch.equal(p, before[id(p)]) for p in group)}


def epochs_of(model: Tuned, spec: Any, optimizer: Any, epochs: int, *, wrapped: bool = False) -> list[set[int]]:
    """Which groups an epoch of three updates changed, bit for bit."""
    made = optimizer.build(model.named_parameters())
    freezing = Freezing(model, {"main": model.network}, train={"main": spec}, wrapped=wrapped)
    freezing.prepare(made)
    changed = []
    for epoch in range(epochs):
        before = {id(p): p.detach().clone() for p in model.parameters()}
        for step in range(3):
            freezing.enter(epochs=epoch + step / 3, share=(epoch + step / 3) / epochs)
            set_rate(made, 0.05)
            model.loss().backward()
            freezing.drop_gradients()
            made.step()
            made.zero_grad(set_to_none=True)
        changed.append(groups_that_changed(model, before))
    return changed


@pytest.mark.parametrize("name", networks())
def test_a_ladder_holds_every_parameter_once(name: str) -> None:
    network = networks()[name]
    groups = parameters_by_depth(network)
    found = [id(p) for group in groups for p in group]
    assert len(groups) == len(network.depth_groups())
    assert sorted(found) == sorted(id(p) for p in network.parameters())


def test_what_is_in_no_group_goes_with_what_comes_before_it() -> None:
    network = networks()["pre"]
    assert any(p is network.norm.weight for p in parameters_by_depth(network)[-1])
    network = networks()["narrow"]
    assert any(p is network.project.weight for p in parameters_by_depth(network)[0])
    network = networks()["siatl"]
    assert any(p is network.down.weight for p in parameters_by_depth(network)[-1])  # in no optimizer of the authors' code


@pytest.mark.parametrize("name", ["transformer", "narrow", "transformer_xl", "lstm", "siatl"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_frozen_groups_keep_every_bit_and_gradual_unfreezing_goes_down(name: str, wrapped: bool) -> None:
    model = Tuned(networks()[name])
    groups = len(parameters_by_depth(model.network))
    changed = epochs_of(model, Gradual(), AdamW(weight_decay=0.1, decay="all"), groups + 1, wrapped=wrapped)
    assert changed == [set(range(groups - epoch, groups + 1)) for epoch in range(groups + 1)]


@pytest.mark.parametrize("optimizer", [AdamW(weight_decay=0.1), BertAdam(weight_decay=0.1), Lamb(), GptAdam(weight_decay=0.1)])
def test_a_group_that_was_trained_and_is_frozen_again_keeps_every_bit(optimizer: Any) -> None:
    model = Tuned(networks()["transformer"])
    changed = epochs_of(model, Chain(), optimizer, 6)
    assert changed == [{4}, {0}, {1}, {2}, {3}, {0, 1, 2, 3, 4}]


def test_the_audit_of_siatls_unfreezing() -> None:
    """By epoch, from 1: the head; from 2 the LSTMs and the map behind them; from 5 the table."""
    model = Tuned(networks()["siatl"])
    changed = epochs_of(model, Sequential(), AdamW(), 5)
    assert changed == [{3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {0, 1, 2, 3}]


def test_ulmfits_code_unfreezes_everything_in_its_third_stage() -> None:
    assert [len(Gradual(together=2).trainable(4, epochs=e, share=0.0)) for e in (0, 1, 2)] == [1, 2, 5]


def test_a_stage_may_be_a_share_of_the_budget() -> None:
    way = Gradual(every=0.25, of="budget")
    assert [min(way.trainable(3, epochs=9.0, share=share)) for share in (0.0, 0.24, 0.25, 0.5, 0.99)] == [3, 3, 2, 1, 0]
    assert [Gradual(every=0.1, of="budget").passed(0.0, number / 10) for number in range(11)] == list(range(11))  # 0.3 / 0.1 < 3


def test_names_of_groups_and_all_and_none() -> None:
    def trainable(value: Any) -> set[int]:
        return set(unfreezing_of(value).trainable(4, epochs=0.0, share=0.0))

    assert trainable("all") == {0, 1, 2, 3, 4} and trainable("none") == {4}
    assert trainable(["embeddings", 0, "-1"]) == {0, 1, 3, 4} and trainable("1") == {2, 4}
    assert isinstance(unfreezing_of(Chain()), Chain)
    with pytest.raises(RecipeError, match="no depth group '7'. Expected: embeddings, or a layer from 0 to 2, .* -1 to -3"):
        trainable(["7"])


@pytest.mark.parametrize("name", ["transformer", "transformer_xl", "lstm", "siatl"])
def test_neighbouring_groups_differ_by_2_6_at_every_step(name: str) -> None:
    model = Tuned(networks()[name])
    made = AdamW().build(model.named_parameters())
    Freezing(model, {"main": model.network}, layerwise=Divide(2.6)).prepare(made)
    groups = [*parameters_by_depth(model.network), list(model.head.parameters())]
    for rate in (0.01, 3.125e-4, 7e-5):
        set_rate(made, rate)
        given = {id(p): group["lr"] for group in made.param_groups for p in group["params"]}
        assert len(given) == sum(1 for _ in model.parameters())
        rates = [{given[id(p)] for p in group} for group in groups]
        assert all(len(same) == 1 for same in rates) and rates[-1] == {rate}
        steps = [max(above) / max(below) for below, above in zip(rates, rates[1:], strict=False)]
        assert steps == pytest.approx([2.6] * len(steps), rel=1e-14)


def test_layers_that_share_weights_have_the_rate_of_the_lowest_of_them() -> None:
    """The others have none of their own, and their turn in unfreezing passes without anything happening."""
    model = Tuned(networks()["shared"])
    made = AdamW().build(model.named_parameters())
    Freezing(model, {"main": model.network}, layerwise=Divide(2.0)).prepare(made)
    set_rate(made, 1.0)
    given = {id(p): group["lr"] for group in made.param_groups for p in group["params"]}
    assert {given[id(p)] for p in model.network.layers[0].parameters()} == {2.0**-3}
    assert [bool(group) for group in parameters_by_depth(model.network)] == [True, True, False, False]


def test_ulmfits_five_rates() -> None:
    rates = [0.01 * factor for factor in Divide(2.6).factors(4)]
    assert rates == pytest.approx([0.000219, 0.000569, 0.001479, 0.003846, 0.01], abs=5e-7)
    assert Divide(2.0, heads=False).factors(2) == (0.5, 1.0, 1.0)
    assert Factors((0.5, 1 / 6, 1 / 3, 1.0)).factors(4) == (0.5, 1 / 6, 1 / 3, 1.0, 1.0)


def test_layers_learn_one_after_another_where_rates_are_progressive() -> None:
    model = Tuned(transformer())
    made = Lamb().build(model.named_parameters())
    Freezing(model, {"main": model.network}, layerwise=Progressive(within=2.0, after=0.5)).prepare(made)
    depth = {id(p): number for number, group in enumerate(parameters_by_depth(model.network)) for p in group}
    seen = []
    for share in (0.0, 0.1 / 3, 1 / 3, 1.05 / 3, 2.1 / 3, 1.0):
        set_rate(made, 0.1, share)
        rates: dict[int, set[float]] = {}
        for group in made.param_groups:
            for parameter in group["params"]:
                rates.setdefault(depth.get(id(parameter), 4), set()).add(round(group["lr"] / 0.1, 4))
        assert all(len(found) == 1 for found in rates.values())
        seen.append([rates[number].pop() for number in range(5)])
    full = round(0.9 + 0.1 * 0.9**0.5, 4)
    assert seen == [
        [1.0, 0.0, 0.0, 0.0, 1.0],
        [1.0, pytest.approx(2 * full, abs=1e-3), 0.0, 0.0, 1.0],
        [1.0, 0.0, 0.0, 0.0, 1.0],
        [1.0, 0.25, 1.0, 0.0, 1.0],
        [1.0, pytest.approx(0.5 * full, abs=1e-3), pytest.approx(0.5 * full, abs=1e-3), pytest.approx(2 * full, abs=1e-3), 1.0],
        [1.0, 0.45, 0.45, 1.8, 1.0],
    ]


def test_factors_that_do_not_fit_the_depth_are_refused() -> None:
    model = Tuned(networks()["lstm"])
    with pytest.raises(RecipeError, match="0.5, 1, 1 for a network with 4 depth groups .embeddings and 3 layers."):
        Freezing(model, {"main": model.network}, layerwise=Factors((0.5, 1.0)))


def test_without_a_head_something_else_must_be_trained_first() -> None:
    network = networks()["lstm"]
    freezing = Freezing(network, {"main": network}, train={"main": Gradual()})
    with pytest.raises(RecipeError, match="main: gradual: after 0% of the budget nothing is trained"):
        freezing.enter(epochs=0, share=0.0)
    assert freezing.enter(epochs=1, share=0.1) and not freezing.enter(epochs=1.5, share=0.2)


def test_what_never_needed_a_gradient_never_gets_one() -> None:
    model = Tuned(networks()["transformer"])
    model.head.bias.requires_grad_(False)
    freezing = Freezing(model, {"main": model.network}, train={"main": Only()})
    freezing.enter(epochs=0, share=0.0)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["head.weight"]


def test_splitting_groups_changes_no_update() -> None:
    """GPT's Adam keeps its decay in the groups; split or not, factors of 1 give the same weights."""
    results = []
    for layerwise in (None, Divide(1.0)):
        model = Tuned(networks()["transformer"])
        made = GptAdam(weight_decay=0.1).build(model.named_parameters())
        if layerwise:
            Freezing(model, {"main": model.network}, layerwise=layerwise).prepare(made)
        for _ in range(3):
            set_rate(made, 0.01)
            model.loss().backward()
            made.step()
            made.zero_grad(set_to_none=True)
        results.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
