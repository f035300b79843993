"""Puts facts about labelled text and graphs into the recipe: the number of classes of a head, the mean of numbers, relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.assembly.build import build_part
from cloze.assembly.parts import builder_of
from cloze.assembly.recipe import EntrySpec, ObjectiveSpec, Recipe
from cloze.corpus import RecordStore, Store, TripleStore
from cloze.errors import TaskError, counted
from cloze.registry import parameters


def with_classes(recipe: Recipe, stores: Mapping[str, Store]) -> Recipe:
    """The recipe with facts about its labelled text or its graph, for the objectives that need them: the number of `classes` or
    `spans`, the `mean`, or the ids of the `relations`.

    Labelled text with fewer than two classes is a `TaskError`.
    """
    entries = {name: _entry(recipe, entry, stores[entry.source]) for name, entry in recipe.entries.items()}
    return recipe if entries == dict(recipe.entries) else replace(recipe, entries=entries)


def _head_arguments(recipe: Recipe, entry: EntrySpec, store: Store) -> dict[str, dict[str, Any]]:
    """The arguments of heads that labelled text determines, for each set of targets that the edits of an entry take from it."""
    if not isinstance(store, RecordStore):
        return {}
    stored = {**store.columns, **({} if store.bounds is None else {"bounds": store.bounds})}
    known: dict[str, Any] = build_part(recipe.sources[entry.source]).answer.head_arguments(stored)
    known |= store.about.get("given", {})
    if store.about["classes"] is not None:
        if len(store.classes) < 2:
            raise TaskError(
                f"{', '.join(store.about['files'])}: {counted(len(store.classes), 'distinct label')} in "
                f"{store.about['read']['label']!r}; "
                "expected at least two."
            )
        known["classes"] = len(store.classes)
    return {str(edit.part.arguments["set"]): known for edit in entry.exercise if "column" in edit.part.arguments}


def _entry(recipe: Recipe, entry: EntrySpec, store: Store) -> EntrySpec:
    known = _head_arguments(recipe, entry, store)
    graph = {"relations": store.relation_ids} if isinstance(store, TripleStore) and store.relation_ids else {}
    passes = tuple(
        replace(run, objectives=tuple(_objective(spec, {**known.get(str(spec.set), {}), **graph}) for spec in run.objectives))
        for run in entry.passes
    )
    return replace(entry, passes=passes)


def _objective(spec: ObjectiveSpec, known: Mapping[str, Any]) -> ObjectiveSpec:
    accepted = parameters(builder_of("objective", spec.part.name))
    found = {name: value for name, value in known.items() if name in accepted}
    return replace(spec, part=replace(spec.part, arguments={**spec.part.arguments, **found})) if found else spec
