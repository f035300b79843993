"""What labelled text says of its answers, put into the recipe: how many classes each head tells apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.assembly.parts import builder_of
from cloze.assembly.recipe import EntrySpec, ObjectiveSpec, Recipe
from cloze.corpus import RecordStore, Store
from cloze.errors import TaskError
from cloze.registry import parameters


def with_classes(recipe: Recipe, stores: Mapping[str, Store]) -> Recipe:
    """The recipe with the number of classes of its labelled text wherever an objective asks for them.

    Labelled text with fewer than two classes is a `TaskError`.
    """
    entries = {name: _entry(entry, stores[entry.source]) for name, entry in recipe.entries.items()}
    return recipe if entries == dict(recipe.entries) else replace(recipe, entries=entries)


def classes_of(entry: EntrySpec, store: Store) -> dict[str, tuple[str, ...]]:
    """The classes of each set of answers that the edits of an entry take from labelled text."""
    if not isinstance(store, RecordStore) or store.about["classes"] is None:
        return {}
    if len(store.classes) < 2:
        raise TaskError(
            f"{', '.join(store.about['files'])}: {len(store.classes)} distinct labels in {store.about['read']['label']!r}; "
            "expected at least two."
        )
    return {str(edit.part.arguments["set"]): store.classes for edit in entry.exercise if "column" in edit.part.arguments}


def _entry(entry: EntrySpec, store: Store) -> EntrySpec:
    known = classes_of(entry, store)
    passes = tuple(
        replace(run, objectives=tuple(_objective(spec, known) for spec in run.objectives)) for run in entry.passes
    )
    return replace(entry, passes=passes)


def _objective(spec: ObjectiveSpec, known: Mapping[str, tuple[str, ...]]) -> ObjectiveSpec:
    builder: Any = builder_of("objective", spec.part.name)
    if spec.set is None or spec.set not in known or "classes" not in parameters(builder):
        return spec
    arguments = {**spec.part.arguments, "classes": len(known[spec.set])}
    return replace(spec, part=replace(spec.part, arguments=arguments))
