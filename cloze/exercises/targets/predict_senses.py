"""Ask for the senses of masked words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cloze.exercises.edit import Edit
from cloze.exercises.tables import check_table, table_of
from cloze.exercises.units.unit_request import columns_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true


@register("edit", "predict_senses")
@dataclass(frozen=True)
class PredictSenses(Edit):
    """Make the senses of each masked word in the look-up table `table` targets (SenseBERT; Levine et al., 2020, §3.2).

    Gives `targets/<set>` and `positions/<set>` (B, K), position -1 for none: the ids of the masked words that have senses. A word
    is asked for only if it is one token: the first piece of a longer word (*dog* of *doggy*) is another word.
    """

    table: str = "senses"
    set: str = "sense"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_table("predict_senses", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "masked", "word_start", "length"})

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: after `corrupt`, targets are the original tokens."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}", f"positions/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        originals, starts = rows["original"] if "original" in rows else rows["tokens"], rows["word_start"]
        width = starts.shape[1]
        ends = np.ones_like(starts)
        ends[:, :-1] = starts[:, 1:] | ~columns_before(rows["length"], width)[:, 1:]
        has_senses: Any = table_of("predict_senses", self.table, self.tables).first[originals] >= 0
        chosen = rows["masked"] & starts & ends & has_senses
        columns = columns_of(chosen)
        real = columns_before(count_true(chosen), columns.shape[1])
        targets = np.take_along_axis(originals, columns, axis=1) if width else np.zeros_like(columns)
        return rows.having_all({
            f"targets/{self.set}": np.where(real, targets, 0).astype(np.int32),
            f"positions/{self.set}": np.where(real, columns, -1).astype(np.int32),
        })
