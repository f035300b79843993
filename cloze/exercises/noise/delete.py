"""Delete tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.noise.rearrange import OfOrdinaryTokens, ordinary
from cloze.exercises.units.unit_request import columns_of, exactly
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "delete")
@dataclass(frozen=True)
class Delete(OfOrdinaryTokens):
    """Delete a fraction `rate` of the ordinary tokens, rounded to the nearest number (BART, Lewis et al., 2020, §2.2).

    At least one token remains.
    """

    rate: Share = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise RecipeError(f"delete: rate must be from 0 to 1, got {self.rate}.")

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if not self.rate:
            return rows
        free = ordinary(rows)
        available = np.count_nonzero(free, axis=1)
        number = np.minimum(np.rint(self.rate * available), np.maximum(available - 1, 0)).astype(np.int64)
        gone = exactly(number, free, draw.bits("delete", free.shape[1]))
        stays = ~gone & (np.arange(free.shape[1]) < rows["length"][:, None])
        return rows.splice(columns_of(stays), rows["length"] - number.astype(np.int32))
