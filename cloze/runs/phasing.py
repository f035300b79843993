"""The schedule of a recipe as phases of a run: shares of the budget, what is trained, and the rates of dropout in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.checkpoint.build import build_part, build_step
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import dropouts
from cloze.recipe.load import phase_recipes
from cloze.recipe.origins import never_trained
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.training.schedule.freezing import ByPhase, Only, Unfreezing, unfreezing_of
from cloze.training.schedule.phases import SchedulePhase, phases_from_shares, sets_base, sets_dropout, sets_train
from cloze.training.step import StepModule


def phases_of(recipe: Recipe) -> tuple[SchedulePhase, ...]:
    """The schedule as shares of the budget. Phases in steps or epochs are taken in proportion to each other."""
    if not recipe.schedule:
        return ()
    sizes = [(phase.share or phase.steps or phase.epochs or 0.0, phase.set) for phase in recipe.schedule]
    return phases_from_shares(sizes)


def with_positions(phases: tuple[SchedulePhase, ...], recipe: Recipe) -> tuple[SchedulePhase, ...]:
    """The phases with the rotary positions that each network has in them, if some phase sets a base."""
    turning = positions_by_phase(recipe)
    return tuple(
        replace(phase, positions={name: build_part(part) for name, part in parts_by_name.items()})
        for phase, parts_by_name in zip(phases, turning, strict=True)
    ) if turning else phases


def positions_by_phase(recipe: Recipe) -> list[dict[str, PartSpec]]:
    """The rotary positions of each network in each phase; nothing if no phase sets a base."""
    if not any(sets_base(path) for phase in recipe.schedule for path in phase.set):
        return []
    parts = [{name: network.part for name, network in phase_recipe.networks.items()} for phase_recipe in phase_recipes(recipe)]
    return [
        {name: part.arguments["positions"] for name, part in parts_by_name.items() if part is not None and _turns(part)}
        for parts_by_name in parts
    ]


def _turns(part: PartSpec) -> bool:
    positions = part.arguments.get("positions")
    return isinstance(positions, PartSpec) and positions.name == "rotary"


def unfreezing(recipe: Recipe, network_name: str) -> Unfreezing:
    """The `train:` of a network as the loop needs it, by phase if a phase sets it; a network that only runs without gradient is
    frozen."""
    if never_trained(recipe, network_name):
        return Only()
    in_turn = [recipe]
    if any(sets_train(path, network_name) for phase in recipe.schedule for path in phase.set):
        in_turn = phase_recipes(recipe)
    train_values = [phase_recipe.networks[network_name].train for phase_recipe in in_turn]
    ways = [unfreezing_of(build_part(train) if isinstance(train, PartSpec) else train) for train in train_values]
    return ways[0] if len(ways) == 1 else ByPhase(phases_of(recipe), tuple(ways))


def with_dropouts(
    phases: tuple[SchedulePhase, ...], recipe: Recipe, step: StepModule, **kwargs: Any
) -> tuple[SchedulePhase, ...]:
    """The phases with the rate of each dropout of `step` in them. The rates are read from the recipe with the values of the
    phase, built without weights, so a rate that defaults to another one follows it."""
    if not any(sets_dropout(path) for phase in phases for path in phase.set):
        return phases
    usual, rated_phases = dropouts(step), []
    for index, phase in enumerate(phases):
        settings = {path: value for path, value in phase.set.items() if sets_dropout(path)}  # without odds and lengths
        for path, value in settings.items():  # one at a time, to find a value that has no effect
            changed = _in_phase(recipe, index, {path: value})
            means = changed.networks != recipe.networks or changed.entries != recipe.entries
            rates = dropouts(build_step(changed, device="meta", **kwargs))
            if rates.keys() != usual.keys() or (means and rates == usual):
                raise RecipeError(
                    f"schedule[{index}].set: {path}: no layer of {recipe.name} reads this value during training.\n"
                    "  Write it among the part's own arguments."
                )
        phase_step = build_step(_in_phase(recipe, index, settings), device="meta", **kwargs)
        rated_phases.append(replace(phase, rates=dropouts(phase_step)))
    return tuple(rated_phases)


def _in_phase(recipe: Recipe, index: int, values: Mapping[str, Any]) -> Recipe:
    """The recipe of one phase, with only these values set."""
    alone = tuple(replace(phase, set=dict(values) if i == index else {}) for i, phase in enumerate(recipe.schedule))
    return phase_recipes(replace(recipe, schedule=alone))[index]
