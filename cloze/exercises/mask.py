"""Choose what is hidden: exactly so many tokens, or whole words up to so many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows

_NEVER = np.uint32(0xFFFFFFFF)


@register("edit", "mask")
@dataclass(frozen=True)
class Mask:
    """Choose a share `rate` of each row, exactly: gives `masked` (B, L).

    `of` says what the share is counted of: `ordinary` tokens, or `all` tokens of the row, special ones included, as the
    authors of BERT count (google-research/bert `create_pretraining_data.py`). `rounding` is to the `nearest` number, at
    least one, or `stochastic`, ⌊rate·n + u⌋ as in RoBERTa (fairseq). `most` caps the number. `spare` names what is never
    chosen; `none` lets special tokens be chosen, as fairseq does. `unit: whole_word` (BERT-wwm) draws words in random order
    and skips a word that would exceed the number. `static` masks are made by the source, which leaves the epoch out of the
    address of its rows.
    """

    unit: Literal["token", "whole_word"] = "token"
    rate: float = 0.15
    of: Literal["ordinary", "all"] = "ordinary"
    most: int | None = None
    rounding: Literal["nearest", "stochastic"] = "nearest"
    spare: Literal["special", "none"] = "special"

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise RecipeError(f"mask: rate must be a share above 0 and at most 1, got {self.rate}.")
        if self.most is not None and self.most < 1:
            raise RecipeError(f"mask: most must be at least 1, got {self.most}.")

    @property
    def takes(self) -> frozenset[str]:
        own = frozenset({"tokens", "length", "special"})
        return own | {"word_start"} if self.unit == "whole_word" else own

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"masked"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        length = rows["length"]
        width = rows["tokens"].shape[1]
        free = np.arange(width, dtype=np.int32) < length[:, None]
        if self.spare == "special":
            free &= ~rows["special"]
        available = np.count_nonzero(free, axis=1)
        number = self._number(length if self.of == "all" else available, draw)
        number = np.minimum(number, available)
        if self.unit == "token":
            masked = exactly(number, free, draw.bits("mask", width))
        else:
            masked = _whole_words(number, free, rows["word_start"], draw)
        return rows.having(masked=masked)

    def _number(self, base: NDArray[Any], draw: Draw) -> NDArray[np.int64]:
        wanted = self.rate * base
        if self.rounding == "stochastic":
            number = np.floor(wanted + draw.uniform("mask.round"))
        else:
            number = np.maximum(np.rint(wanted), 1)
        return (number if self.most is None else np.minimum(number, self.most)).astype(np.int64)


def exactly(number: NDArray[np.int64], free: NDArray[np.bool_], bits: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Choose exactly `number` (B,) of the `free` places (B, L) of each row by random `bits` (B, L).

    Each place gets a unique key, random high bits over the column, so there are no ties; the number-th smallest key of a
    row is its threshold.
    """
    width = free.shape[1]
    low = np.uint32((1 << max(width - 1, 1).bit_length()) - 1)
    keys = np.where(free, (bits & ~low) | np.arange(width, dtype=np.uint32), _NEVER)
    most = int(number.max(initial=0))
    if most == 0:
        return np.zeros_like(free)
    smallest = np.sort(keys, axis=1)
    threshold = smallest[np.arange(len(keys)), np.maximum(number - 1, 0)]
    chosen = (keys <= threshold[:, None]) & free
    if int(number.min()) == 0:
        chosen &= (number > 0)[:, None]
    return chosen


def _whole_words(
    number: NDArray[np.int64], free: NDArray[np.bool_], word_start: NDArray[np.bool_], draw: Draw
) -> NDArray[np.bool_]:
    """Whole words in random order; a word longer than what is left is skipped."""
    count, width = free.shape
    # A word never crosses a place that may not be chosen: the first free place after one starts a word.
    starts = free & word_start
    starts[:, 0] |= free[:, 0]
    starts[:, 1:] |= free[:, 1:] & ~free[:, :-1]
    word = np.cumsum(starts, axis=1) - 1
    words = int(word[:, -1].max()) + 1
    flat = (np.arange(count)[:, None] * words + word)[free]
    sizes = np.bincount(flat, minlength=count * words).reshape(count, words)
    low = np.uint32((1 << max(words - 1, 1).bit_length()) - 1)
    keys = np.where(sizes > 0, (draw.bits("mask.word", words) & ~low) | np.arange(words, dtype=np.uint32), _NEVER)
    turn = np.argsort(keys, axis=1)
    sizes_in_turn = np.take_along_axis(sizes, turn, axis=1)
    taken_in_turn = np.zeros((count, words), bool)
    left = number.copy()
    for place in range(words):
        size = sizes_in_turn[:, place]
        fits = (size <= left) & (size > 0)
        left -= size * fits
        taken_in_turn[:, place] = fits
        if not left.any():
            break
    taken = np.zeros_like(taken_in_turn)
    np.put_along_axis(taken, turn, taken_in_turn, axis=1)
    return np.take_along_axis(taken, np.maximum(word, 0), axis=1) & free
