"""Choose the summary token of a row if it is not the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "summarise")
@dataclass(frozen=True)
class Summarise(Edit):
    """Choose the summary token of a row: its `first` or its `last` token (GPT, XLNet: the last)."""

    by: Literal["first", "last"] = "last"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"summary"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        last = np.maximum(rows["length"].astype(np.int64) - 1, 0)
        return rows.having_all({"summary": last if self.by == "last" else np.zeros_like(last)})
