"""Rotate a text: start at a random token and append its beginning at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.noise.rearrange import OfOrdinaryTokens, by_key, ordinals, ordinary
from cloze.registry import register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows


@register("edit", "rotate")
@dataclass(frozen=True)
class Rotate(OfOrdinaryTokens):
    """Rotate a fraction `rate` of the rows to start at a token chosen uniformly (BART, Lewis et al., 2020, §2.2).

    Tokens inserted by a frame stay in place.
    """

    rate: Share = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise RecipeError(f"rotate: rate must be from 0 to 1, got {self.rate}.")

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if not self.rate:
            return rows
        coins = draw.bits("rotate", 2)
        free = ordinary(rows)
        row, column, ordinal, number = ordinals(free)
        start = np.where(coins[:, 0] < self.rate * 2.0**32, integers_below(coins[:, 1], number), 0)
        key = np.zeros(free.shape, np.int64)
        key[row, column] = (ordinal - start[row]) % number[row]
        return by_key(rows, free, key)
