"""Cut the whole row into spans of random lengths and choose some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.lengths import drawn, odds_of
from cloze.exercises.units.unit_request import UnitRequest, keyed, numbered

#: GPT-BERT's: one, two or three tokens, equally often.
LENGTHS = {"1": 1.0, "2": 1.0, "3": 1.0}


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Spans of tokens that follow one another without a gap (GPT-BERT, Charpentier and Samuel, 2024; ltgoslo/gpt-bert
    `dataset.py`).

    They are masked whole, in random order, until the number is reached, so the last may exceed it.

    Differs: in the code, tokens masked in an earlier epoch are less likely to be masked again.
    """
    mask, draw, free = request.mask, request.draw, request.free
    count, width = free.shape
    lengths = np.maximum(drawn(odds_of(mask.lengths or LENGTHS), draw.bits("mask.length", width)), 1)
    begins = np.zeros((count, width + 1), bool)  # by the ordinal of a token among the maskable ones
    np.put_along_axis(begins, np.minimum(np.cumsum(lengths, axis=1) - lengths, width), True, axis=1)
    begins = np.take_along_axis(begins, np.maximum(np.cumsum(free, axis=1) - 1, 0), axis=1) & free
    span = np.maximum(np.cumsum(begins, axis=1) - 1, 0)
    sizes = np.zeros((count, width), np.int64)
    np.add.at(sizes, (np.nonzero(free)[0], span[free]), 1)
    order = np.argsort(keyed(sizes > 0, draw.bits("mask.span", width)), axis=1)
    in_order = np.take_along_axis(sizes, order, axis=1)
    covered = np.zeros((count, width), bool)
    np.put_along_axis(covered, order, np.cumsum(in_order, axis=1) - in_order < request.number[:, None], axis=1)
    masked = np.take_along_axis(covered, span, axis=1) & free
    return {"masked": masked, "layers/span": numbered(masked, begins)}
