"""Spans that may be empty and may overlap, each to be replaced by one token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.lengths import drawn, odds_of
from cloze.exercises.units.unit_request import Bools, UnitRequest, columns_of, covered, exactly, keyed, numbered, slots
from cloze.rows import count_true, rows_and_columns

#: The paper's.
LENGTHS = {"poisson": 3.0}


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Text infilling (BART, Lewis et al., 2020, §2.2; fairseq `denoising_dataset.py`, `add_whole_word_mask`).

    Lengths are drawn until they add up to the number; the last is trimmed. Each non-empty span starts at a word of its own and
    covers that many words, or as many as there are; a span that starts inside another becomes part of it. `layers/insert` is the
    number of empty spans before a token.

    Differs: an empty span never follows the last token; one seeded generator draws everything.
    """
    draw, free, words = request.draw, request.free, request.words
    lengths, used = _lengths(request)
    row, slot = rows_and_columns(used & (lengths > 0))
    filled = np.bincount(row, minlength=len(free))
    order = np.argsort(keyed(words.sizes > 0, draw.bits("mask.word", words.sizes.shape[1])), axis=1)
    word = order[row, slots(filled)]
    final = np.minimum(word + lengths[row, slot] - 1, words.last[row, word])
    cover = covered((row, words.first[row, word]), (row, words.stop[row, final]), free.shape)
    masked = cover > 0
    starts = np.zeros_like(free)
    starts[row, words.first[row, word]] = True
    heads = starts & (cover == 1)
    empty = count_true(used & (lengths == 0))
    inserts = _inserts(empty, free & (~masked | heads), request)
    return {"masked": masked, "layers/span": numbered(masked, heads), "layers/insert": inserts}


def _lengths(request: UnitRequest) -> tuple[NDArray[np.int64], Bools]:
    """(B, T) lengths that add up to the number of each row, and which of them are used."""
    odds = odds_of(request.mask.lengths or LENGTHS)
    number = request.number
    tries = int(number.max(initial=0)) // 2 + 8
    while True:
        lengths = drawn(odds, request.draw.bits("mask.length", tries))
        reached = np.cumsum(lengths, axis=1)
        if (reached[:, -1] >= number).all():
            break
        tries *= 2
    before = reached - lengths
    used = before < number[:, None]
    return np.minimum(lengths, number[:, None] - before), used


def _inserts(number: NDArray[np.int64], stays: Bools, request: UnitRequest) -> NDArray[np.int32]:
    """(B, L) how many of `number` (B,) further tokens go before each remaining token: every arrangement is equally likely."""
    survivors = count_true(stays)
    number = np.where(survivors > 0, number, 0)
    positions = np.maximum(survivors + number - 1, 0)
    width = stays.shape[1]
    most = max(int(positions.max(initial=0)), 1)
    free = np.arange(most) < positions[:, None]
    row, slot = rows_and_columns(exactly(number, free, request.draw.bits("mask.insert", most)))
    before = slot - slots(number)
    flat = row * width + columns_of(stays)[row, before]
    return np.bincount(flat, minlength=stays.size).reshape(stays.shape).astype(np.int32)
