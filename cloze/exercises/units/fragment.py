"""One span of the row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.unit_request import UnitRequest, numbered
from cloze.rng import integers_below


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """One fragment (MASS, Song et al., 2019, §3.1): at the start with probability `first`, at the end with probability
    `last`, else uniformly anywhere (microsoft/MASS `restricted_mask_sent`)."""
    mask, draw, free = request.mask, request.draw, request.free
    max_tokens = np.count_nonzero(free, axis=1) - request.number
    begin = integers_below(draw.bits("mask.start"), max_tokens + 1)
    if mask.start:
        first, last = mask.start.get("first", 0.0), mask.start.get("last", 0.0)
        coin = draw.uniform("mask.end")
        begin = np.where(coin < first, 0, np.where(coin < first + last, max_tokens, begin))
    ordinal = np.cumsum(free, axis=1) - 1 - begin[:, None]
    masked = free & (ordinal >= 0) & (ordinal < request.number[:, None])
    return {"masked": masked, "layers/span": numbered(masked, np.zeros_like(masked))}
