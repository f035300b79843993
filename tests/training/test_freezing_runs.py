"""Unfreezing and rates by depth inside a run: applied at their borders, and alike after a break."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import bert, tiny_run, weights

from cloze.changes import Divide, Gradual, Progressive
from cloze.errors import RecipeError
from cloze.registry import lookup, names
from cloze.training.loop import train
from cloze.training.optimizers import (
    averaged,  # noqa: F401  register optimizers
    static_optimizers,  # noqa: F401  register optimizers
)
from cloze.training.optimizers.static_optimizers import Sgd
from cloze.training.schedule.freezing import Freezing, Only, parameters_by_depth, set_rate
from cloze.training.schedule.rates import Plateau, observe_losses

WAY = {"train": {"main": Gradual(every=0.25, of="budget")}, "layerwise": Divide(2.6)}


def groups_of(step: Any) -> list[list[torch.Tensor]]:
    return [[p.detach().clone() for p in group] for group in parameters_by_depth(step.networks["main"])]


@pytest.mark.parametrize("budget, frozen", [("3steps", [0, 1, 2]), ("6steps", [0, 1]), ("9steps", [0])])
def test_a_run_unfreezes_from_the_top(tmp_path: Path, budget: str, frozen: list[int]) -> None:
    """Of a budget of 12 steps a quarter each: heads, the second layer, the first, the embeddings."""
    step = bert()
    before = groups_of(step)
    way = {"main": Gradual(every=0.25 * 12 / int(budget[0]), of="budget")}
    train(tiny_run(tmp_path, step=step, budget=budget, train=way))
    after = groups_of(step)
    kept = [n for n in range(3) if all(torch.equal(a, b) for a, b in zip(before[n], after[n], strict=True))]
    assert kept == frozen


@pytest.mark.parametrize(("budget", "moved"), [("2steps", [1]), ("4steps", [1, 2])])
def test_progressive_rates_move_up_with_the_share_of_the_budget(tmp_path: Path, budget: str, moved: list[int]) -> None:
    """Of four steps, the first and the third begin the part of a layer, at a rate of 0."""
    step = bert()
    before = groups_of(step)
    way = Progressive(within=1.0, after=0.0)
    part = {"factors": lambda groups, share=0.0: way.factors(groups, share * int(budget[0]) / 4)}
    train(tiny_run(tmp_path, step=step, budget=budget, layerwise=SimpleNamespace(moves=True, **part)))
    after = groups_of(step)
    assert [n for n in (1, 2) if not all(torch.equal(a, b) for a, b in zip(before[n], after[n], strict=True))] == moved


def test_a_run_that_was_broken_off_goes_on_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.training.interrupt import Interrupt

    train(tiny_run(tmp_path / "whole", **WAY))
    asked = iter([False] * 7 + [True] * 9)
    with monkeypatch.context() as patched:
        patched.setattr(Interrupt, "__bool__", lambda self: next(asked))
        assert not train(tiny_run(tmp_path / "broken", **WAY)).finished
    assert train(tiny_run(tmp_path / "broken", **WAY)).finished
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    train(tiny_run(tmp_path / "plain"))
    assert weights(tmp_path / "plain") != weights(tmp_path / "whole")


def test_a_rate_that_waits_for_better_losses_goes_on_alike_after_a_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At so high a rate the held-out loss rises, and the rate falls at evaluations; a run that goes on knows of them."""
    from cloze.training.interrupt import Interrupt

    def way() -> dict[str, Any]:
        return {"rate": Plateau(0.5, factor=0.1), "training": {"evaluate_every": 1 / 6}}

    train(tiny_run(tmp_path / "whole", **way()))
    asked = iter([False] * 7 + [True] * 9)
    with monkeypatch.context() as patched:
        patched.setattr(Interrupt, "__bool__", lambda self: next(asked))
        train(tiny_run(tmp_path / "broken", **way()))
    train(tiny_run(tmp_path / "broken", **way()))
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")
    log = [json.loads(line) for line in (tmp_path / "whole" / "cloze" / "log.jsonl").read_text().splitlines()]
    rates = [record["learning_rate"] for record in log if record["event"] == "train"]
    assert rates[0] == 0.5 and rates == sorted(rates, reverse=True) and rates[-1] < 0.5


def test_a_resumed_plateau_has_the_rate_of_what_was_heard_before_the_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held-out losses are scripted, so that one drop is before the break and another depends on the best before it."""
    from cloze.training.interrupt import Interrupt
    from cloze.training.session import Session

    losses = [3.0, 2.0, 2.5, 1.9, 1.95, 1.0]

    def evaluate(self: Session) -> None:
        history = self.evaluations.history
        history.append(losses[len(history)])
        observe_losses(self.run.rate, history)

    monkeypatch.setattr(Session, "evaluate", evaluate)

    def begun() -> Any:
        return tiny_run(tmp_path, rate=Plateau(0.5, factor=0.1), training={"evaluate_every": 1 / 6, "log_every": 1})

    asked = iter([False] * 7 + [True] * 9)
    with monkeypatch.context() as patched:
        patched.setattr(Interrupt, "__bool__", lambda self: next(asked))
        assert not train(begun()).finished
    records = [json.loads(line) for line in (tmp_path / "cloze" / "log.jsonl").read_text().splitlines()]
    assert max(record["step"] for record in records if record["event"] == "train") == 7
    assert train(begun()).finished
    records = [json.loads(line) for line in (tmp_path / "cloze" / "log.jsonl").read_text().splitlines()]
    rates = {record["step"]: record["learning_rate"] for record in records if record["event"] == "train"}
    expected = {step: 0.5 * 0.1 ** (0 if step <= 6 else 1 if step <= 10 else 2) for step in range(1, 13)}
    assert rates == pytest.approx(expected)


def test_a_network_that_stays_what_it_is_trains_its_heads(tmp_path: Path) -> None:
    step = bert()
    before, heads = groups_of(step), [p.detach().clone() for p in step.objectives.parameters()]
    train(tiny_run(tmp_path, step=step, budget="3steps", train={"main": Only()}))
    assert all(torch.equal(a, b) for old, new in zip(before, groups_of(step), strict=True) for a, b in zip(old, new, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(heads, step.objectives.parameters(), strict=True))


@pytest.mark.parametrize("name", names("optimizer"))
def test_every_optimizer_spares_what_is_frozen_and_heeds_factors(name: str) -> None:
    torch.manual_seed(0)
    builder: Any = lookup("optimizer", name)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[0].depth_groups = lambda: [model[0]]  # type: ignore[assignment]
    accepted = inspect.signature(builder).parameters
    asked: dict[str, Any] = {"weight_decay": 0.1} if "weight_decay" in accepted else {}
    asked |= {part: Sgd() for part, parameter in accepted.items() if parameter.default is inspect.Parameter.empty}
    made = builder(**asked).build(model.named_parameters())
    freezing = Freezing(model, {"main": model[0]}, train={"main": Gradual()}, layerwise=Divide(4.0))
    freezing.prepare(made)
    first = [p.detach().clone() for p in model[0].parameters()]
    for epoch in (0, 1):
        for _ in range(2):
            freezing.enter(epochs=epoch, share=0.5)
            set_rate(made, 0.01)
            model(torch.ones(3, 4)).square().sum().backward()
            freezing.drop_gradients()
            made.step()
            made.zero_grad(set_to_none=True)
        moved = [not torch.equal(a, b) for a, b in zip(first, model[0].parameters(), strict=True)]
        assert any(moved) == (epoch == 1)
        assert all(math.isfinite(float(p.sum().detach())) for p in model.parameters())
    rates = {id(p): group["lr"] for group in made.param_groups for p in group["params"]}
    assert {rates[id(p)] for p in model[0].parameters()} == {0.0025} and {rates[id(p)] for p in model[1].parameters()} == {0.01}


def test_a_run_in_which_nothing_is_trained_is_refused(tmp_path: Path) -> None:
    step = bert()
    for parameter in step.objectives.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(RecipeError, match="nothing is trained, because no head has parameters of its own"):
        train(tiny_run(tmp_path, step=step, train={"main": Only()}))
