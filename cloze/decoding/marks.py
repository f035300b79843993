"""Labelled layers of texts that a network reads: around masks, and padded to a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.layout import Framed, Ids, Marks
from cloze.errors import UserError


def marks_around(reader: Any, ids: Ids, text: str) -> Marks:
    """The labelled layers of one text with masks, whose tokens are `ids`. Nothing is known of a mask, and no unit spans one."""
    if not reader.annotations:
        return {}
    mask, literal = reader.tokenizer.role("[MASK]"), reader.tokenizer.literals.get("[MASK]", "[MASK]")
    at = np.flatnonzero(ids == mask)
    pieces = text.replace("[MASK]", literal).split(literal)
    layers: dict[str, NDArray[Any]] = {}
    for first, last, marks in zip([0, *(at + 1)], [*at, len(ids)], reader.marks(pieces), strict=False):
        for name, values in marks.items():
            labels = layers.setdefault(name, np.zeros(len(ids), values.dtype))
            if len(values) == last - first:
                labels[first:last] = values
    return layers


def unlabelled(marks: Marks, hidden: NDArray[np.bool_]) -> Marks:
    """The labelled layers of a text (T,) without the units that have a hidden token (T,)."""
    layers: dict[str, NDArray[Any]] = {}
    for name in [name for name in marks if name.startswith("layers/")]:
        layer, labels = marks[name], "labels/" + name.removeprefix("layers/")
        unit = np.cumsum(layer == 1)
        gone = np.isin(unit, unit[hidden & (layer > 0)]) & (layer > 0)
        layers[name], layers[labels] = np.where(gone, 0, layer), np.where(gone, 0, marks[labels])
    return layers


def refuse_marks(reader: Any, what: str) -> None:
    """A `UserError` for a network that reads labelled layers, where texts get none."""
    if reader.annotations:
        named = ", ".join(reader.annotations.layers)
        raise UserError(
            f"this network reads annotations ({named}), and {what} reads texts without them.\n"
            "  Use a network whose recipe has no link and no show, or a task that does not write: cloze finetune --task …"
        )


def padded_marks(rows: Sequence[Framed], tokens: NDArray[np.int64], mask: int) -> dict[str, NDArray[Any]]:
    """The labelled layers of rows with the padded `tokens` (B, L). A unit with a token that is the `mask` has no label."""
    layers: dict[str, NDArray[Any]] = {}
    for number, row in enumerate(rows):
        for name, values in row.marks.items():
            layers.setdefault(name, np.zeros(tokens.shape, values.dtype))[number, : len(row)] = values
    for name in [name for name in layers if name.startswith("layers/")]:
        layer, labels = layers[name], layers["labels/" + name.removeprefix("layers/")]
        unit = np.cumsum(layer == 1).reshape(layer.shape)
        hidden = np.isin(unit, unit[(tokens == mask) & (layer > 0)]) & (layer > 0)
        layer[hidden], labels[hidden] = 0, 0
    return layers
