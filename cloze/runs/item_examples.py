"""The items of a built example as plain data for people: what `cloze peek` says of the regions of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cloze import fields
from cloze.corpus.items.item_store import ItemSet
from cloze.rows import Rows

Asked = dict[str, dict[int, str | None]]


def items_of(row: Rows, sets: Mapping[str, ItemSet]) -> list[dict[str, Any]]:
    """The sets of items of one row: for each item its box, its classes by name, how it is shown, and what is asked of it.

    `shown` is `as it is`, `hidden` (its vector is zero), or, where `mask_items` has chosen the item, `another` or `kept`.
    """
    return [
        {"set": fields.split(name).set, "items": [*_items(row, str(fields.split(name).set), sets)]}
        for name in row if fields.split(name).field == "item_length"
    ]


def _items(row: Rows, name: str, sets: Mapping[str, ItemSet]) -> Iterator[dict[str, Any]]:
    names = sets[name].names if name in sets else {}
    answers_by_set = _asked(row, name, names)
    boxes, vectors = row.get(f"item_vectors/{name}/boxes"), row.get(f"item_vectors/{name}")
    masked, originals = row.get(f"items/{name}/masked"), row.get(f"item_originals/{name}")
    classes = {
        array: row[f"items/{name}/{array}"][0] for array in (sets[name].classes if name in sets else {})
        if f"items/{name}/{array}" in row
    }
    for index in range(int(row[f"item_length/{name}"][0])):
        chosen = masked is not None and bool(masked[0, index])
        changed = originals is not None and vectors is not None and bool((originals[0, index] != vectors[0, index]).any())
        empty = vectors is not None and not vectors[0, index].any()
        state = "hidden" if changed and empty else "another" if changed else "kept" if chosen else "as it is"
        item: dict[str, Any] = {"shown": state}
        if boxes is not None:
            item["box"] = [round(float(number), 4) for number in boxes[0, index, :4]]
        for array, ids in classes.items():
            if ids[index] >= 0:
                item[array] = _named(int(ids[index]), names.get(array, ()))
        item["asked"] = {target: answers[index] for target, answers in answers_by_set.items() if index in answers}
        yield item


def _asked(row: Rows, name: str, names: Mapping[str, tuple[str, ...]]) -> Asked:
    """For each set of targets the items that it asks, with the class that is right; None for numbers."""
    answers_by_set: Asked = {}
    for field in row:
        part = fields.split(field)
        if part.field != "item_positions" or not str(part.set).startswith(f"{name}/"):
            continue
        target = str(part.set).removeprefix(f"{name}/")
        answers = row.get(f"targets/{target}")
        answers_by_set[target] = {
            int(index): None if answers is None else _named(int(answers[0, i]), names.get(target, names.get("class", ())))
            for i, index in enumerate(row[field][0]) if index >= 0
        }
    return answers_by_set


def _named(number: int, names: tuple[str, ...]) -> str:
    """The name of a class, or its number where classes have none."""
    return names[number] if number < len(names) else str(number)
