"""Restrict later edits to the tokens of a companion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before


@register("edit", "only")
@dataclass(frozen=True)
class OnlyCompanion(Edit):
    """Mark all tokens as special except those of the companion `of`, which ends the row: later edits choose only among them."""

    of: str = "target"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", f"{self.of}.length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"special"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        length, width = rows["length"].astype(np.int64), rows["tokens"].shape[1]
        return rows.having(special=columns_before(length - rows[f"{self.of}.length"], width))
