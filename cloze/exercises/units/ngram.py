"""N-grams of a few words that start in random order and do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.lengths import drawn, odds_of
from cloze.exercises.units.unit_request import UnitRequest, keyed, numbered

#: ALBERT's: p(n) in proportion to 1/n, that is 6/11, 3/11, 2/11.
LENGTHS = {"inverse": 3.0}


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """N-grams of whole words (ALBERT, Lan et al., 2020, §3.1; google-research/albert `create_pretraining_data.py`).

    Start words come in random order, each with a random length; an n-gram that exceeds the remaining number is shortened; one
    that overlaps an earlier n-gram is skipped. `count` limits the n-grams instead of the tokens.

    Differs: an n-gram never crosses a special token; the authors' code continues in the next segment.
    """
    mask, draw = request.mask, request.draw
    odds = odds_of(mask.lengths or LENGTHS)
    words = request.words
    rows, number = words.sizes.shape
    every = np.arange(rows)
    steps = np.arange(len(odds) - 1)
    order = np.argsort(keyed(words.sizes > 0, draw.bits("mask.ngram", number)), axis=1)
    lengths = drawn(odds, draw.bits("mask.length", number))
    left = request.number.copy()
    spans = np.full(rows, mask.count or rows * number + number, np.int64)
    covered = np.zeros((rows, number + len(steps)), bool)
    begins = np.zeros(request.free.shape, bool)
    for rank in range(number):
        word = order[:, rank]
        reach = np.minimum(lengths[:, rank], words.last[every, word] - word + 1)
        member = np.minimum(word[:, None] + steps, number - 1)
        tokens = words.stop[every[:, None], member] - words.first[every, word][:, None]
        inside = (steps < reach[:, None]) & (tokens <= left[:, None])
        size = np.count_nonzero(inside, axis=1)
        clash = (covered[every[:, None], word[:, None] + steps] & inside).any(axis=1)
        good = (words.sizes[every, word] > 0) & (size > 0) & ~clash & (spans > 0)
        if good.any():
            hit, step = np.nonzero(inside & good[:, None])
            covered[hit, word[hit] + step] = True
            begins[every[good], words.first[every, word][good]] = True
            left -= np.where(good, tokens[every, np.maximum(size - 1, 0)], 0)
            spans -= good
        if not ((left > 0) & (spans > 0)).any():
            break
    masked = np.take_along_axis(covered, words.word, axis=1) & request.free
    return {"masked": masked, "layers/span": numbered(masked, begins)}
