"""Spans, each surrounded by text in proportion to its length."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.lengths import drawn, odds_of
from cloze.exercises.units.unit_request import UnitRequest, exactly, numbered
from cloze.rng import integers_below

#: XLNet's: p(n) in proportion to 1/n for n up to 5.
LENGTHS = {"inverse": 5.0}


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """One token in k, which is 1/`rate` rounded (XLNet, Yang et al., 2019, §2.3; zihangdai/xlnet `_sample_mask`).

    From left to right: draw a length n, take the next n·k tokens, and mask n of them, beginning at the first start of a word
    after a random offset. The remainder at the end is filled with random single tokens.
    """
    mask, draw, free = request.mask, request.draw, request.free
    odds = odds_of(mask.lengths or LENGTHS)
    every = max(round(1 / mask.rate), 1)
    count, width = free.shape
    goal = request.number
    following = _next_start(request)
    cursor, chosen = np.argmax(free, axis=1), np.zeros(count, np.int64)
    end = width - np.argmax(free[:, ::-1], axis=1)  # after the last maskable token
    change = np.zeros((count, width + 1), np.int64)
    active, attempt = np.flatnonzero(goal > 0), 0
    while len(active):
        at = np.full(len(active), attempt)
        size = np.minimum(drawn(odds, draw.bits_at("mask.length", active, at)), goal[active] - chosen[active])
        context = size * every
        offset = integers_below(draw.bits_at("mask.offset", active, at), context)
        begin = following[active, np.minimum(cursor[active] + offset, width)]
        fits = begin + size < end[active]
        active, begin, size, after = active[fits], begin[fits], size[fits], (context - offset)[fits]
        change[active, begin] += 1
        change[active, begin + size] -= 1
        chosen[active] += size
        cursor[active] = begin + size + after
        active = active[(chosen[active] < goal[active]) & (cursor[active] < end[active])]
        attempt += 1
    masked = (np.cumsum(change[:, :width], axis=1) > 0) & free
    missing = goal - np.count_nonzero(masked, axis=1)
    filled = exactly(missing, free & ~masked, draw.bits("mask.fill", width))
    return {"masked": masked | filled, "layers/span": numbered(masked | filled, (change[:, :width] > 0) | filled)}


def _next_start(request: UnitRequest) -> NDArray[np.int64]:
    """(B, L + 1) the first column from here on at which a word starts; L if none does."""
    free = request.free
    width = free.shape[1]
    column = np.where(free & request.starts, np.arange(width), width)
    following = np.full((len(free), width + 1), width, np.int64)
    following[:, :width] = np.minimum.accumulate(column[:, ::-1], axis=1)[:, ::-1]
    return following
