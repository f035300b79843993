"""Spans from random anchors until the number is reached."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.lengths import drawn, odds_of
from cloze.exercises.units.unit_request import UnitRequest, columns_of, numbered
from cloze.rng import integers_below

#: SpanBERT's.
LENGTHS = {"geometric": {"p": 0.2, "max_length": 10.0}}


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Spans of words (SpanBERT, Joshi et al., 2020, §3.1; facebookresearch/SpanBERT `masking.py`).

    Lengths and anchor tokens are drawn repeatedly; an anchor that is masked already is dropped; the span begins with the anchor's
    word, covers that many words and stops when the number is reached, if necessary inside a word. Spans that overlap or touch are
    one.
    """
    mask, draw, free = request.mask, request.draw, request.free
    odds = odds_of(mask.lengths or LENGTHS)
    words = request.words
    columns, available = columns_of(free), np.count_nonzero(free, axis=1)
    masked = np.zeros_like(free)
    left = request.number.copy()
    active, attempt = np.flatnonzero(left > 0), 0
    while len(active):
        at = np.full(len(active), attempt)
        anchor = columns[active, integers_below(draw.bits_at("mask.anchor", active, at), available[active])]
        length = drawn(odds, draw.bits_at("mask.length", active, at))
        fresh = ~masked[active, anchor]
        row = active[fresh]
        word = words.word[row, anchor[fresh]]
        final = np.minimum(word + length[fresh] - 1, words.last[row, word])
        start, stop = words.first[row, word], words.stop[row, final]
        column = start[:, None] + np.arange(int((stop - start).max(initial=0)))
        new = (column < stop[:, None]) & ~masked[row[:, None], np.minimum(column, free.shape[1] - 1)]
        new &= np.cumsum(new, axis=1) <= left[row][:, None]
        hit, step = np.nonzero(new)
        masked[row[hit], column[hit, step]] = True
        left[row] -= np.count_nonzero(new, axis=1)
        active = active[left[active] > 0]
        attempt += 1
    return {"masked": masked, "layers/span": numbered(masked, np.zeros_like(masked))}
