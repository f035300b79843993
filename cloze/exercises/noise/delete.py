"""Delete tokens or words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.noise.rearrange import OfOrdinaryTokens, ordinary
from cloze.exercises.units.unit_request import columns_of, exactly, sized
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, count_true


@register("edit", "delete")
@dataclass(frozen=True)
class Delete(OfOrdinaryTokens):
    """Delete a fraction `rate` of the ordinary tokens, or of the words with `unit: word`.

    `rounding`: to the `nearest` number (BART, Lewis et al., 2020, §2.2); `independent`, one draw for each (TSDAE,
    UKPLab/sentence-transformers `DenoisingAutoEncoderDataset.py`). At least one remains.
    """

    rate: Share = 0.15
    unit: Literal["token", "word"] = "token"
    rounding: Literal["nearest", "independent"] = "nearest"

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise RecipeError(f"delete: rate must be from 0 to 1, got {self.rate}.")

    @property
    def takes(self) -> frozenset[str]:
        """Where the text ends, and for words, where they start."""
        return super().takes | ({"word_start"} if self.unit == "word" else set())

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if not self.rate:
            return rows
        free = ordinary(rows)
        _, unit, sizes = sized(free, rows["word_start"] if self.unit == "word" else np.ones_like(free))
        exists = sizes > 0
        available = count_true(exists)
        bits = draw.bits("delete", exists.shape[1])
        if self.rounding == "nearest":
            number = np.rint(self.rate * available)
        else:
            number = count_true(exists & (bits < self.rate * 2.0**32))
        # The smallest bits go in both cases, so the one that stays of units that would all go is a random one.
        number = np.minimum(number, np.maximum(available - 1, 0)).astype(np.int64)
        gone = np.take_along_axis(exactly(number, exists, bits), unit, axis=1) & free
        stays = ~gone & (np.arange(free.shape[1]) < rows["length"][:, None])
        return rows.splice(columns_of(stays), rows["length"] - count_true(gone).astype(np.int32))
