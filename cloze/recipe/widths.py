"""Arguments of objectives that name a reading and stand for the width of the network that it comes from: `project: teacher`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EntrySpec, NetworkSpec, ObjectiveSpec


def with_widths(entry: EntrySpec, networks: Mapping[str, NetworkSpec]) -> EntrySpec:
    """The entry with numbers in place of such names, where the network's width is known.

    The shape of a checkpoint is known once it is bound; until then the name stays.
    """
    widths: dict[str, int] = {}
    for run in entry.passes:
        part = networks[run.network].part if run.network in networks else None
        if part is not None and isinstance(part.arguments.get("width"), int):
            widths[run.name] = part.arguments["width"]
    passes = (replace(run, objectives=tuple(_completed(spec, widths) for spec in run.objectives)) for run in entry.passes)
    return replace(entry, passes=tuple(passes))


def _completed(objective: ObjectiveSpec, widths: Mapping[str, int]) -> ObjectiveSpec:
    part = objective.part
    numbers = {}
    for name in class_of(part.kind, part.name).width_arguments:
        path = objective.read.get(str(part.arguments.get(name)), "")
        owner = path.rpartition(".")[0]
        if owner in widths:
            numbers[name] = widths[owner]
    return replace(objective, part=replace(part, arguments={**part.arguments, **numbers})) if numbers else objective
