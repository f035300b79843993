"""Make words of one kind more likely to be masked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count, NonNegative
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.tables import check_table, table_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "favour")
@dataclass(frozen=True)
class Favour(Edit):
    """Mask words of one kind `times` as often: gives `favour` (B, L), by which `mask` with `rounding: independent` multiplies its
    rate.

    The words are those that an annotation `layer` marks (SentiLARE: words of a sentiment lexicon, 30 % instead of 15 %), or those
    that have one to `most` senses in the look-up table `senses` (SenseBERT). Several such edits multiply.
    """

    layer: str | None = None
    senses: str | None = None
    most: Count = 1
    times: NonNegative = 2.0
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.layer is None) == (self.senses is None):
            raise RecipeError("favour: name the words by one of `layer` (an annotation) and `senses` (a look-up table).")
        if self.senses is not None:
            check_table("favour", self.senses, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens"} | ({f"layers/{self.layer}"} if self.layer is not None else set()))

    @property
    def optional(self) -> frozenset[str]:
        """What an earlier edit favours."""
        return frozenset({"favour"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"favour"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        before = rows["favour"] if "favour" in rows else np.ones(rows["tokens"].shape, np.float32)
        return rows.having(favour=np.where(self._chosen(rows), before * np.float32(self.times), before))

    def _chosen(self, rows: Rows) -> NDArray[np.bool_]:
        """(B, L) the tokens of the words that are favoured."""
        if self.layer is not None:
            return np.asarray(rows[f"layers/{self.layer}"] > 0)
        counts = table_of("favour", str(self.senses), self.tables).counts[rows["tokens"]]
        return np.asarray((counts > 0) & (counts <= self.most))
