"""Built examples as plain data for people: what `cloze peek` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cloze import fields
from cloze.checkpoint.feeds import edits_of, first_length, source_options
from cloze.corpus import Store
from cloze.corpus.records import RecordStore
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.recipe.builders import build
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import EntrySpec, Recipe, as_plain_data
from cloze.registry import lookup
from cloze.rows import Rows
from cloze.runs.item_examples import items_of
from cloze.text import Tokenizer

_SHOWN = frozenset({"word_start"})  # fields that people read and networks do not
_SEES = {
    "open": "every token sees every token",
    "left_to_right": "every token sees itself and the tokens to its left",
    "right_to_left": "every token sees itself and the tokens to its right",
    "source_to_target": "the first segment sees itself; the second sees the first and the tokens to its left",
    "permutation": "every token sees the visible tokens, and the hidden tokens that come earlier in a random order",
}


def examples(
    recipe: Recipe, stores: Mapping[str, Store], tokenizer: Tokenizer, *, tables: Mapping[str, Any], rows: int,
    length: int | None, epoch: int, seed: int,
) -> list[dict[str, Any]]:
    """The first `rows` examples of an epoch of every entry, as dictionaries (one per view)."""
    descriptions = []
    for entry in recipe.entries.values():
        spec = recipe.sources[entry.source]
        source = build(lookup(spec.kind, spec.name), as_plain_data(spec.arguments), {"tables": tables})
        store = stores[entry.source]
        edits = edits_of(recipe, entry, TokenFacts.of(tokenizer), store=store, tables=tables)
        bound = store.bind_source(
            source, lanes=recipe.training.lanes, options=source_options(source, edits, lanes=rows), seed=seed, entry=entry.name,
            held_out=0.0, subset="train",
        )
        exercise = Exercise(edits, length or first_length(recipe), keep=_SHOWN | _about_items(edits))
        plan = bound.plan(epoch, exercise.max_tokens)
        items = np.arange(min(rows, len(plan)))
        block = exercise(bound.read(plan, items, with_words(exercise.wants)), bound.draw(plan, items))
        views = dict.fromkeys([*(run.view for run in entry.passes), *sorted(exercise.second)])
        for row in range(len(items)):
            for view in views:
                sees = _sees(recipe, entry, view)
                row_view = block.take(slice(row, row + 1)).view(view)
                sets = store.items.sets if isinstance(store, RecordStore) and store.items is not None else {}
                descriptions.append({**_example(entry, view, row_view, tokenizer, sees), "items": items_of(row_view, sets)})
    return descriptions


def _about_items(edits: Sequence[PlacedEdit]) -> frozenset[str]:
    """The fields that say what is asked about items, and how they were before they were hidden."""
    names = (placed.full(name) for placed in edits for name in placed.edit.gives)
    return frozenset(name for name in names if fields.split(name).field in ("item_positions", "item_originals"))


def with_words(wants: frozenset[str]) -> frozenset[str]:
    """The same fields plus word starts in every text, because people read words."""
    views = {name.rpartition(".")[0] for name in wants}
    return wants | {fields.join(view, "word_start") for view in views}


def _example(entry: EntrySpec, view: str, row: Rows, tokenizer: Tokenizer, sees: str) -> dict[str, Any]:
    length = int(row["length"][0])
    targets: dict[int, list[str]] = {}
    for position, piece in _targets(row, tokenizer):
        targets.setdefault(position, []).append(piece)
    special = row["special"][0] if "special" in row else np.isin(row["tokens"][0], tokenizer.special_ids)
    hides = any(class_of("edit", edit.part.name).hides for edit in entry.exercise if edit.view == view)
    tokens = []
    for position, token in enumerate(row["tokens"][0, :length].tolist()):
        record: dict[str, Any] = {"shown": tokenizer.piece(token), "special": bool(special[position])}
        if "word_start" in row and not special[position]:
            record["starts_word"] = bool(row["word_start"][0, position])
        if "segments" in row:
            record["segment"] = int(row["segments"][0, position])
        if position in targets:
            record["target"] = " ".join(targets[position])
        tokens.append(record)
    row_targets = {
        fields.split(name).set: int(value[0])
        for name, value in row.items() if fields.split(name).field == "targets" and value.ndim == 1
    }
    return {
        "entry": entry.name, "view": view, "length": length, "tokens": tokens, "hides": hides,
        "sees": _only_visible(sees, row), "row_targets": row_targets,
        "targets": _count(row, targets, length) + (f", {len(targets) / length:.1%}" if hides and targets else ""),
    }


def _count(row: Rows, targets: Mapping[int, Sequence[str]], length: int) -> str:
    """How many targets an example has, in words."""
    if "cell_count" in row:
        return f"a co-occurrence count, {float(row['cell_count'][0]):g}"
    if not targets and any(fields.split(name).field == "targets" and value.ndim == 2 for name, value in row.items()):
        return f"none of {length} tokens: nothing is predicted in this example"
    pieces = sum(map(len, targets.values()))
    return (f"{pieces} for " if pieces > len(targets) else "") + f"{len(targets)} of {length} tokens"


def _sees(recipe: Recipe, entry: EntrySpec, view: str) -> str:
    """What a token sees, in words: the network's own description, or else the order's."""
    run = next((run for run in entry.passes if run.view == view), None)
    if run is None:  # a second sequence, which a decoder writes
        parts = [recipe.networks[run.network].part for run in entry.passes]
        kinds = [class_of("network", part.name) for part in parts if part is not None]
        return next((str(kind.sees[kind.writes]) for kind in kinds if kind.writes), _SEES["left_to_right"])
    part = recipe.networks[run.network].part
    kind = class_of("network", part.name) if part is not None else None
    if kind is not None and kind.sees:
        read = [state for objective in run.objectives for state in objective.read.values() if state != kind.writes]
        return next((str(kind.sees[state]) for state in read if state in kind.sees), str(kind.sees["hidden"]))
    name = entry.order if isinstance(entry.order, str) else entry.order.name
    return _SEES.get(name, f"as {name} says")


def _only_visible(sees: str, row: Rows) -> str:
    """What a token sees if the field `visible` of its row hides some tokens from others."""
    length = int(row["length"][0])
    if "visible" not in row or row["visible"][0, :length, :length].all():
        return sees
    return f"{sees}, except those that are hidden from it (field visible)"


def _targets(row: Rows, tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """(position, piece) of every target that is a token."""
    for name, targets in row.items():
        part = fields.split(name)
        if part.field == "targets" and targets.ndim == 2 and f"positions/{part.set}" in row:
            for position, target in zip(row[f"positions/{part.set}"][0].tolist(), targets[0].tolist(), strict=True):
                if position >= 0:
                    yield position, tokenizer.piece(target)
