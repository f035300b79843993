"""What a network reads next to the tokens of texts, their marks: labelled layers, around masks and padded to a batch; and the
characters of words that the vocabulary lacks."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.layout import Framed, Ids, Marks
from cloze.errors import UserError
from cloze.networks.spelling import spell

#: Among the marks of a text, the characters (T, C) of the words that the vocabulary lacks, zeros elsewhere.
CHARACTERS = "characters"


def marks_around(reader: Any, ids: Ids, text: str) -> Marks:
    """The marks of one text with masks, whose tokens are `ids`. Nothing is known of a mask, and no unit spans one."""
    if not reader.reads_marks:
        return {}
    mask, literal = reader.tokenizer.role("[MASK]"), reader.tokenizer.literals.get("[MASK]", "[MASK]")
    at = np.flatnonzero(ids == mask)
    pieces = text.replace("[MASK]", literal).split(literal)
    layers: dict[str, NDArray[Any]] = {}
    spans = zip([0, *(at + 1)], [*at, len(ids)], strict=True)
    for (first, last), alone, marks in zip(spans, reader.ids(pieces), reader.marks(pieces), strict=False):
        source = aligned(alone, ids[first:last])
        for name, values in marks.items():
            labels = layers.setdefault(name, np.zeros((len(ids), *values.shape[1:]), values.dtype))
            labels[first:last] = _moved(values, source, is_layer=name.startswith("layers/"))
    return layers


def aligned(alone: Ids, here: Ids) -> NDArray[np.int64]:
    """For each token of a piece of text between masks, `here` (T,), the token that stands for the same text where the piece is
    tokenized alone, -1 for none. Only some tokens next to a mask differ."""
    source = np.full(len(here), -1, np.int64)
    for kind, low, high, first, last in SequenceMatcher(None, alone.tolist(), here.tolist(), autojunk=False).get_opcodes():
        if kind in ("equal", "replace"):
            source[first:last] = low + np.arange(last - first) * (high - low) // (last - first)
    return source


def _moved(values: NDArray[Any], source: NDArray[np.int64], *, is_layer: bool) -> NDArray[Any]:
    """The values (S, …) at the tokens `source` (T,), zeros for -1. In a layer, the first token left of a unit starts it."""
    padded = np.concatenate([values, np.zeros((1, *values.shape[1:]), values.dtype)])
    moved: NDArray[Any] = padded[source]
    if is_layer:
        unit = np.append(np.cumsum(values == 1) * (values > 0), 0)[source]
        moved = np.where(unit > 0, np.where(np.diff(unit, prepend=0) != 0, 1, 2), 0).astype(values.dtype)
    return moved


def unlabelled(marks: Marks, hidden: NDArray[np.bool_]) -> Marks:
    """The marks of a text (T,) without the units of its layers that have a hidden token (T,)."""
    layers = {name: values for name, values in marks.items() if name == CHARACTERS}
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


def spelled(texts: Sequence[str], tokenizer: Any, per_word: int) -> list[Marks]:
    """The characters of the unknown words of each text, (T, C); nothing for a text whose words are all known.

    A word is spelled as it stands in its text, in lower case if the tokenizer lowers.
    """
    unknown, spelling = tokenizer.roles.get("[UNK]"), tokenizer.encode_spelled(texts)
    marks: list[dict[str, NDArray[Any]]] = [{} for _ in texts]
    for number in np.flatnonzero(spelling.ids == unknown).tolist():
        text = int(np.searchsorted(spelling.offsets, number, "right")) - 1
        first, last = (int(offset) for offset in spelling.offsets[text : text + 2])
        characters = marks[text].setdefault(CHARACTERS, np.zeros((last - first, per_word), np.int16))
        word = texts[text][spelling.begin[number] : spelling.end[number]]
        characters[number - first] = spell([word.lower() if tokenizer.lower else word], per_word)[0]
    return list(marks)


def padded_characters(rows: Sequence[Framed], width: int) -> NDArray[np.int64]:
    """(B, L, C), zeros where a row has none."""
    size = max(row.characters.shape[1] for row in rows if row.characters is not None)
    characters = np.zeros((len(rows), width, size), np.int64)
    for number, row in enumerate(rows):
        if row.characters is not None:
            characters[number, : len(row)] = row.characters
    return characters
