"""Leaves out of a built-in recipe the questions about pictures that their file and captions do not answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cloze.checkpoint.build import build_part
from cloze.corpus import RecordStore, Store
from cloze.corpus.items.item_store import FEATURES
from cloze.errors import Say
from cloze.exercises.items.ask_items import AskItems
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EditSpec, EntrySpec, PartSpec, Recipe


def without_unanswered(recipe: Recipe, stores: Mapping[str, Store], say: Say) -> Recipe:
    """The recipe without the questions that its stores of items do not answer: about arrays that the items lack, such as the
    probabilities of classes where features come from a backbone, and about an answer that no caption has.

    Their edits and objectives are left out, entries that then have no objective, and what sources read for them; this is said.
    A recipe that would ask nothing more is returned as it is, and so is one whose questions are all answered.
    """
    unanswered = {name: _unanswered(recipe, entry, stores[entry.source]) for name, entry in recipe.entries.items()}
    entries = {name: _entry(entry, unanswered[name]) for name, entry in recipe.entries.items()}
    entries = {name: entry for name, entry in entries.items() if any(entry.objectives())}
    if not any(unanswered.values()) or not entries:
        return recipe
    lacking = dict.fromkeys(name for questions in unanswered.values() for name in questions.values())
    say(
        f"the store has no {', '.join(lacking)}, so the network does not learn to predict this (--as-published refuses it).\n"
        "  Of regions, a classifier tells class, score and probabilities: cloze features --model MODEL --crops"
    )
    sources = {name: _source(source, stores[name], _read(recipe, name, entries)) for name, source in recipe.sources.items()}
    return replace(recipe, entries=entries, sources=sources)


def _unanswered(recipe: Recipe, entry: EntrySpec, store: Store) -> dict[str, str]:
    """The sets of targets of an entry that a store does not answer, with the name of what it lacks."""
    if not isinstance(store, RecordStore) or store.items is None or recipe.task is not None:
        return {}
    lacking: dict[str, str] = {}
    columns = build_part(recipe.sources[entry.source]).answer.columns
    for edit in entry.exercise:
        if (question := _question(edit)) is not None:
            item_set = store.items.sets.get(question.items)
            if question.array != FEATURES and item_set is not None and question.array not in item_set.kinds:
                lacking[question.name] = question.array
        elif class_of("edit", edit.part.name).targets_of_answer and (absent := [n for n in columns if n not in store.stored]):
            lacking[str(edit.part.arguments["set"])] = absent[0]
    return lacking


def _question(edit: EditSpec) -> AskItems | None:
    """The question of an edit about items."""
    if class_of("edit", edit.part.name) is not AskItems:
        return None
    question: AskItems = build_part(edit.part)
    return question


def _set_of(edit: EditSpec) -> str | None:
    """The set of targets that a question makes."""
    if (question := _question(edit)) is not None:
        return question.name
    return str(edit.part.arguments["set"]) if class_of("edit", edit.part.name).targets_of_answer else None


def _entry(entry: EntrySpec, unanswered: Mapping[str, str]) -> EntrySpec:
    """An entry without some sets of targets."""
    edits = tuple(edit for edit in entry.exercise if _set_of(edit) not in unanswered)
    passes = tuple(
        replace(pass_, objectives=tuple(spec for spec in pass_.objectives if spec.set not in unanswered))
        for pass_ in entry.passes
    )
    return replace(entry, exercise=edits, passes=passes) if unanswered else entry


def _read(recipe: Recipe, source: str, entries: Mapping[str, EntrySpec]) -> set[tuple[str, str]]:
    """The arrays that questions of the whole recipe read of a source, and those of `entries` do not: (items, array)."""
    def arrays(of: Mapping[str, EntrySpec]) -> set[tuple[str, str]]:
        questions = [_question(edit) for entry in of.values() if entry.source == source for edit in entry.exercise]
        return {
            (question.items, array) for question in questions if question is not None
            for array in (question.array, question.weigh) if array is not None and array != FEATURES
        }

    return arrays(recipe.entries) - arrays(entries)


def _source(source: PartSpec, store: Store, unread: set[tuple[str, str]]) -> PartSpec:
    """A source without the arrays that nobody reads any more, and without an answer that its store lacks."""
    items = source.arguments.get("items")
    if not isinstance(store, RecordStore) or not isinstance(items, Mapping):
        return source
    read = {name: [array for array in arrays if (name, array) not in unread] for name, arrays in items.items()}
    arguments = {**source.arguments, "items": read}
    if any(name not in store.stored for name in build_part(source).answer.columns):
        arguments["answer"] = PartSpec("answer", "none", {})
    return replace(source, arguments=arguments)
