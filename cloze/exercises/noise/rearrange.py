"""Edits of the ordinary tokens of each row, such as another order; special tokens stay where they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import Bools, slots
from cloze.rows import Rows, columns_before, count_true, rows_and_columns


class OfOrdinaryTokens(Edit):
    """An edit that moves or deletes tokens of the text, and none that a frame has inserted."""

    @property
    def takes(self) -> frozenset[str]:
        """Where the text ends."""
        return frozenset({"tokens", "length"})

    @property
    def optional(self) -> frozenset[str]:
        """Which tokens a frame has inserted."""
        return frozenset({"special"})

    @property
    def gives(self) -> frozenset[str]:
        """The tokens in another order, or fewer."""
        return frozenset({"tokens"})


def ordinary(rows: Rows) -> Bools:
    """(B, L) the tokens of the text: all tokens that a frame has not marked as special."""
    inside = np.arange(rows["tokens"].shape[1], dtype=np.int32) < rows["length"][:, None]
    return inside & ~rows["special"] if "special" in rows else inside


def sentences_of(rows: Rows) -> tuple[Bools, NDArray[np.int64]]:
    """(B, L) the ordinary tokens, and the sentence of each; any other token has that of the ordinary ones to its left, or 0."""
    free = ordinary(rows)
    return free, np.maximum(np.maximum.accumulate(np.where(free, rows["sentence"], -1), axis=1), 0)


def by_key(rows: Rows, free: Bools, key: NDArray[np.int64]) -> Rows:
    """The free tokens of each row sorted by `key` (B, L), 0 … L − 1, equal ones in their original order."""
    width = free.shape[1]
    bits = width.bit_length()
    keys = (np.where(free, key, width) << bits) | np.arange(width)  # the key above the column: numbers are sorted fastest
    sources = np.sort(keys, axis=1) & ((1 << bits) - 1)
    index = np.broadcast_to(np.arange(width), free.shape).copy()
    index[free] = sources[columns_before(count_true(free), width)]
    return rows.splice(index, rows["length"])


def ordinals(free: Bools) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Row, column and ordinal of every free token, and their number per row."""
    row, column = rows_and_columns(free)
    number = np.bincount(row, minlength=len(free))
    return row, column, slots(number), number
