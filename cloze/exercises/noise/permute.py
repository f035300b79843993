"""Shuffle the sentences of a passage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.noise.rearrange import OfOrdinaryTokens, by_key, sentences_of
from cloze.exercises.units.unit_request import exactly, keyed
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "permute")
@dataclass(frozen=True)
class Permute(OfOrdinaryTokens):
    """Permute a fraction `rate` of the sentences, rounded up, among themselves (BART, Lewis et al., 2020, §2.2).

    A separator between documents stays after the sentence it follows. The order may stay the same.
    """

    unit: Literal["sentence"] = "sentence"
    rate: Share = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise RecipeError(f"permute: rate must be from 0 to 1, got {self.rate}.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "sentence"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", "sentence"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        free, sentence = sentences_of(rows)
        number = np.where(free.any(axis=1), sentence[:, -1] + 1, 0)
        width = max(int(number.max(initial=0)), 1)
        exists = np.arange(width) < number[:, None]
        moving = np.ceil(self.rate * number - 1e-9).astype(np.int64)
        chosen = exactly(moving, exists, draw.bits("permute.which", width))
        positions = np.argsort(~chosen, axis=1, kind="stable")            # the chosen sentences in their order, then the others
        dealt = np.argsort(keyed(chosen, draw.bits("permute", width)), axis=1)  # the chosen sentences in a random order
        moved = np.arange(width) < moving[:, None]
        rank = np.broadcast_to(np.arange(width), exists.shape).copy()  # the new ordinal of each sentence
        row, slot = np.nonzero(moved)
        rank[row, dealt[row, slot]] = positions[row, slot]
        return by_key(rows, free, np.take_along_axis(rank, sentence, axis=1))
