"""Whole words, or whatever units the annotation layers of the store mark."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.unit_request import Bools, UnitRequest, exactly, keyed, sized


def choose(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Whole words in random order; a word longer than what is left is skipped (BERT-wwm, google-research/bert).

    With `of: words` the number counts words, every choice is equally likely and none is skipped (CamemBERT, Martin et
    al., 2020, §3.2; fairseq `mask_tokens_dataset.py`).
    """
    return {"masked": _whole(request, request.rows["word_start"])}


def choose_layers(request: UnitRequest) -> dict[str, NDArray[Any]]:
    """Whole units that the layers mark: 0 outside, 1 the start of a unit, 2 inside (ERNIE, Sun et al., 2019, §3.2).

    The first name is the unit outside all layers, `token` or `whole_word`; if layers mark the same token, the last one named
    applies.
    """
    rows = request.rows
    base, *layers = list(request.mask.unit)
    starts = rows["word_start"].copy() if base == "whole_word" else np.ones_like(request.free)
    owner = np.zeros(starts.shape, np.int8)
    for number, name in enumerate(layers, 1):
        mark = rows[f"layers/{name}"]
        starts = np.where(mark > 0, mark == 1, starts)
        owner[mark > 0] = number
    starts[:, 1:] |= owner[:, 1:] != owner[:, :-1]
    return {"masked": _whole(request, starts)}


def _whole(request: UnitRequest, starts: Bools) -> Bools:
    number, free, draw = request.number, request.free, request.draw
    starts, word, sizes = sized(free, starts)
    count, words = sizes.shape
    bits = draw.bits("mask.word", words)
    if request.mask.rounding == "independent":
        covered = bits < request.odds(starts, word, sizes) * 2.0**32
        return np.take_along_axis(covered, word, axis=1) & free
    if request.mask.of == "words":
        return np.take_along_axis(exactly(number, sizes > 0, bits), word, axis=1) & free
    order = np.argsort(keyed(sizes > 0, bits), axis=1)
    sizes_in_order = np.take_along_axis(sizes, order, axis=1)
    taken_in_order = np.zeros((count, words), bool)
    left = number.copy()
    for rank in range(words):
        size = sizes_in_order[:, rank]
        fits = (size <= left) & (size > 0)
        left -= size * fits
        taken_in_order[:, rank] = fits
        if not left.any():
            break
    covered = np.zeros_like(taken_in_order)
    np.put_along_axis(covered, order, taken_in_order, axis=1)
    return np.take_along_axis(covered, word, axis=1) & free
