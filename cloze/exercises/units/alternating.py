"""Text and noise alternate: both are cut at random into the same number of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.unit_request import Ints, UnitRequest, covered, exactly, numbered, slots
from cloze.rows import rows_and_columns


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Span corruption (T5, Raffel et al., 2020, §3.1.4; `preprocessors.py`, `random_spans_noise_mask`).

    N tokens in K = max(1, round(N/mean)) spans: noise and text are each cut at random into K parts that are not empty and
    alternate, text first. The first token is never masked, the last always; with one span, the mask is always at the end.
    """
    free = request.free
    tokens = np.count_nonzero(free, axis=1)
    noise = np.clip(request.number, 0, np.maximum(tokens - 1, 0))
    parts = spans_in(noise, tokens, request.mask.mean)
    text_stops, noise_stops = (
        _cut(items, parts, request, name) for items, name in ((tokens - noise, "text"), (noise, "noise"))
    )
    row = np.repeat(np.arange(len(free)), parts)
    begin = text_stops + np.where(slots(parts) > 0, np.concatenate([[0], noise_stops[:-1]]), 0)
    stop = text_stops + noise_stops
    width = max(int(tokens.max(initial=0)), 1)
    chosen = covered((row, begin), (row, stop), (len(free), width)) > 0
    masked = np.zeros_like(free)
    if (free[:, :width] == (np.arange(width) < tokens[:, None])).all():  # nothing special: ordinals are columns
        masked[:, :width] = chosen
    else:
        ordinal = np.clip(np.cumsum(free, axis=1) - 1, 0, width - 1)
        masked = np.take_along_axis(chosen, ordinal, axis=1) & free
    return {"masked": masked, "layers/span": numbered(masked, np.zeros_like(masked))}


def spans_in(noise: Ints, tokens: Ints, mean: float) -> Ints:
    """The number of spans for this much noise; halves are rounded to even, as the authors do."""
    return np.minimum(np.where(noise > 0, np.maximum(np.rint(noise / mean), 1), 0).astype(np.int64), tokens - noise)


def _cut(items: Ints, parts: Ints, request: UnitRequest, name: str) -> Ints:
    """Where each part stops when `items` (B,) are cut into `parts` (B,), each way equally likely; listed row by row."""
    width = max(int(items.max(initial=0)), 1)
    inner = np.arange(width) < (items - 1)[:, None]
    borders = exactly(np.maximum(parts - 1, 0), inner, request.draw.bits(f"mask.{name}", width))
    rows = np.flatnonzero(parts > 0)
    borders[rows, items[rows] - 1] = True  # the last part stops at the end
    return rows_and_columns(borders)[1] + 1
