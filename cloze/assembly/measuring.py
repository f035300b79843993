"""A recipe with a `task:` on its labelled text: what is measured while it trains, and what its folder says of the task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.assembly.build import Loaded, built, head_key
from cloze.assembly.recipe import EntrySpec, ObjectiveSpec, PassSpec, Recipe
from cloze.corpus import RecordStore, Store
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import name_dropouts
from cloze.tasks import Task
from cloze.tasks.task import chosen_metric
from cloze.tasks.task import task as make_task
from cloze.text import Tokenizer
from cloze.training.selection import Selection
from cloze.training.step import Step


def task_of(recipe: Recipe, store: Store) -> Task:
    """The task of a recipe, reading files as its source does."""
    assert recipe.task is not None and isinstance(store, RecordStore)
    read = store.about["read"]
    columns = {name: read[name] for name in ("text", "text_b", "label") if read[name] is not None}
    return make_task(recipe.task.type, **columns).reading(
        columns=read["names"], format=read["format"], quoting=read["quoting"]
    )


def asked(recipe: Recipe) -> tuple[EntrySpec, PassSpec, ObjectiveSpec]:
    """The objective that answers the task: the first of the exported network that is asked for a column of its text."""
    for entry in recipe.entries.values():
        sets = {edit.part.arguments["set"] for edit in entry.exercise if "column" in edit.part.arguments}
        for run, objective in entry.objectives():
            if run.network == recipe.export and objective.set in sets:
                return entry, run, objective
    raise RecipeError(
        f"{recipe.name}: task: no objective of {recipe.export!r} is asked for a column of labelled text.\n"
        "  Write the edit `label: {set: label}` and an objective with the same set."
    )


def described(recipe: Recipe, stores: Mapping[str, Store]) -> dict[str, Any]:
    """What `cloze/task.json` says, as far as it is known before anything is trained."""
    assert recipe.task is not None
    entry, _, objective = asked(recipe)
    store = stores[entry.source]
    assert isinstance(store, RecordStore)  # it has columns
    made: dict[str, Any] = {"version": 1, "task": recipe.task.type, **task_of(recipe, store).description()}
    made |= {"head": objective.state, "length": recipe.sources[entry.source].arguments["length"]}
    answer = built(recipe.sources[entry.source]).answer
    return {**made, **answer.told(store.columns, store.classes)}


def counted(
    recipe: Recipe, told: Mapping[str, Any], stores: Mapping[str, Store], dev: Store, rooms: Mapping[str, int]
) -> dict[str, Any]:
    """What task.json says of the examples: how many there are, how many rows lose tokens in their room, and the dev metrics of
    always giving the usual answer."""
    entry, _, _ = asked(recipe)
    parts = {"train": stores[entry.source], "dev": dev}
    found = {name: store for name, store in parts.items() if isinstance(store, RecordStore)}
    task = task_of(recipe, stores[entry.source])
    made: dict[str, Any] = {
        "examples": {name: store.documents for name, store in found.items()},
        "cut": {name: int((store.lengths.sum(1) > rooms[entry.name]).sum()) for name, store in found.items()},
    }
    if "usual" in told:
        examples = task.read(found["dev"].about["files"][0])
        made["baseline"] = {"always": told["usual"], **task.constant(told["usual"], examples, told.get("labels", ()))}
    return made


def selection_of(
    recipe: Recipe, step: Step, tokenizer: Tokenizer, stores: Mapping[str, Store], dev: Store, told: Mapping[str, Any],
    folder: Path,
) -> Selection:
    """How a recipe with a `task:` is measured: by what uses the trained network, on all examples of the dev set."""
    assert recipe.task is not None and isinstance(dev, RecordStore)
    entry, run, objective = asked(recipe)
    task = task_of(recipe, stores[entry.source])
    metric = chosen_metric(task, recipe.task.metric)
    learner = task.load(as_loaded(recipe, step, tokenizer, run, objective, folder), told, None)
    name_dropouts(step)  # the learner has named those of its parts after itself
    rows: list[Any] = []

    def measure() -> dict[str, float]:
        if not rows:
            for file in dev.about["files"]:
                rows.extend(learner.answered(task.read(file)))
        return learner.measure(rows, size=2 * recipe.training.batch)

    return Selection(
        measure, metric, more=task.metrics[metric], best=recipe.task.keep == "best", patience=recipe.task.patience
    )


def as_loaded(
    recipe: Recipe, step: Step, tokenizer: Tokenizer, run: PassSpec, objective: ObjectiveSpec, folder: Path
) -> Loaded:
    """The exported network of a step and the head that answers, as if they had been loaded from a folder."""
    part = recipe.exported.part
    assert part is not None  # the recipe is built
    network: Any = step.networks[recipe.export]
    own = {reading: path for reading, path in objective.read.items() if "." not in path}
    entry = next(entry for entry in recipe.entries.values() if run in entry.passes)
    return Loaded(
        recipe=None, network=network, heads={objective.state: step.objectives[head_key(recipe, run, objective)]},
        tokenizer=tokenizer, reading=recipe.reading, order=str(entry.order), folder=folder,
        network_arguments=part.arguments, clock=step.clock, imported=None, reads={objective.state: own} if own else {},
    )
