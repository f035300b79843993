"""What a network reads next to the tokens of texts: labelled layers, around masks and padded to a batch; and the characters of
words that the vocabulary lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.layout import Framed, Ids, Marks
from cloze.errors import UserError
from cloze.networks.spelling import spell


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


def spelled_around(reader: Any, row: Framed, text: str) -> Framed:
    """A text with masks, framed, with the characters of its unknown words, for a network that reads characters."""
    if "characters" not in reader.network.takes:
        return row
    literal = reader.tokenizer.literals.get("[MASK]", "[MASK]")
    pieces = text.replace("[MASK]", literal).split(literal)
    columns = np.flatnonzero(row.part == 0)
    at = np.flatnonzero(row.ids[columns] == reader.tokenizer.role("[MASK]"))
    characters = None
    for first, last, piece in zip([0, *(at + 1)], [*at, len(columns)], reader.encode_whole(pieces), strict=False):
        spelled = None if piece.characters is None else piece.characters[piece.part == 0]
        if spelled is not None and len(spelled) == last - first:
            characters = np.zeros((len(row), spelled.shape[1]), np.int16) if characters is None else characters
            characters[columns[first:last]] = spelled
    return row if characters is None else replace(row, characters=characters)


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
        layers = ", ".join(reader.annotations.layers)
        raise UserError(
            f"this network reads annotations ({layers}), and {what} reads texts without them.\n"
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


def spelled(framed: Sequence[Framed], parts: Sequence[Sequence[str]], tokenizer: Any, per_word: int) -> list[Framed]:
    """Framed texts with the characters of the words that are unknown; `parts` are all first texts, then all second ones.

    A word is spelled as it stands in its text, in lower case if the tokenizer lowers.
    """
    unknown = tokenizer.roles.get("[UNK]")
    characters = [np.zeros((len(row), per_word), np.int16) for row in framed]
    for part, texts in enumerate(parts):
        spelling = tokenizer.encode_spelled(texts)
        for number in np.flatnonzero(spelling.ids == unknown).tolist():
            row = int(np.searchsorted(spelling.offsets, number, "right")) - 1
            positions = np.flatnonzero(framed[row].part == part)
            index = number - int(spelling.offsets[row])
            if index < len(positions):  # else it did not fit
                word = texts[row][spelling.begin[number] : spelling.end[number]]
                characters[row][positions[index]] = spell([word.lower() if tokenizer.lower else word], per_word)[0]
    return [replace(row, characters=letters) if letters.any() else row for row, letters in zip(framed, characters, strict=True)]


def padded_characters(rows: Sequence[Framed], width: int) -> NDArray[np.int64]:
    """(B, L, C), zeros where a row has none."""
    size = max(row.characters.shape[1] for row in rows if row.characters is not None)
    characters = np.zeros((len(rows), width, size), np.int64)
    for number, row in enumerate(rows):
        if row.characters is not None:
            characters[number, : len(row)] = row.characters
    return characters
