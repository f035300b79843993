"""Two segments in the second half of a row of running text; the second may be from another place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.joined import with_companions
from cloze.exercises.units.unit_request import exactly
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true

_FRAME = 3  # tokens that a frame adds to the second half: two [SEP] and the [CLS]


@register("edit", "pair_half")
@dataclass(frozen=True)
class PairHalf(Edit):
    """Cut the second half of each row at a sentence boundary: A comes before it, B after it (XLNet, Yang et al.,
    2019, §2.5; zihangdai/xlnet `data_utils.py`, `_split_a_and_b`).

    The first half is running text and joins A, so that its tokens have the segment of A. With probability `elsewhere`, and if the
    second half has no inner boundary, B is a span of the lane that begins with a sentence at a random position: whole sentences
    that fill at least the half. Then the longer of A and B is cut at its right end until both fit. The pair has no target: the
    authors write a label that nothing reads.

    Gives `parts` (B, 2, 2): start and stop of both segments. The halves are those of a row to which three tokens will be added.

    Differs: a B that continues A ends where the row's text ends, so that nothing is cut from A; the authors read on to the end of
    the sentence and cut the longer one. They count the tokens of another B from a random place in its first sentence.
    """

    elsewhere: Share = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.elsewhere <= 1:
            raise RecipeError(f"pair_half: elsewhere is {self.elsewhere}; expected a fraction of the rows, from 0 to 1.")

    @property
    def joins(self) -> tuple[str, ...]:
        """The companion whose text the row may contain."""
        return ("distractor",)

    @property
    def takes(self) -> frozenset[str]:
        names = frozenset({"tokens", "length", "sentence"})
        return names | {f"distractor.{name}" for name in names}

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"parts"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        sentence, length = rows["sentence"], rows["length"].astype(np.int64)
        count, width = sentence.shape
        columns = np.arange(width)
        half = np.minimum((length + _FRAME + 1) // 2, length)
        borders = np.zeros(sentence.shape, bool)
        borders[:, 1:] = sentence[:, 1:] != sentence[:, :-1]
        borders &= (columns > half[:, None]) & columns_before(length, width)
        divisible: NDArray[np.bool_] = np.any(borders, axis=1)
        chosen = exactly(np.asarray(divisible, np.int64), borders, draw.bits("pair_half.cut", width))
        cut = np.where(divisible, np.argmax(chosen, axis=1), length)
        away = (~divisible | (draw.uniform("pair_half") < self.elsewhere)) & (length - half > 1)
        first = np.where(away | divisible, cut, length) - half
        second = np.where(away, _sentences(rows, length - half - first), length - half - first)
        first, second = _fitted(first, second, length - half)
        begin = np.where(away, width, cut)
        parts = np.zeros((count, 2, 2), np.int64)
        parts[:, 0, 1] = half + first
        parts[:, 1, 0], parts[:, 1, 1] = begin, begin + second
        pairs = rows.without("sentence")
        return pairs.having_all({**with_companions(pairs, "distractor"), "parts": parts})


def _sentences(rows: Rows, minimum: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many tokens of the distractor make whole sentences of at least `minimum` tokens, one at least."""
    length, sentence = rows["distractor.length"].astype(np.int64), rows["distractor.sentence"]
    last = np.clip(minimum - 1, 0, np.maximum(length - 1, 0))[:, None]
    behind = np.zeros(sentence.shape, bool)
    behind[:, 1:] = (sentence[:, 1:] != sentence[:, :-1]) & (np.arange(1, sentence.shape[1]) > last)
    behind |= ~columns_before(length, sentence.shape[1])
    return count_true(np.cumsum(behind, axis=1) == 0)


def _fitted(
    first: NDArray[np.int64], second: NDArray[np.int64], max_tokens: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both after the longer one (if equal, the second) has lost tokens one by one until they fit in `max_tokens`."""
    fitted = np.minimum(first, np.maximum(max_tokens - second, (max_tokens + 1) // 2))
    return fitted, np.minimum(second, max_tokens - fitted)
