"""The characters of words that the vocabulary lacks, for networks that read characters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.layout import Framed
from cloze.networks.spelling import spell


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
