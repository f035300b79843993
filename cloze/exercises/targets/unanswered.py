"""The position of the answer to a question in a row that does not contain it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "unanswered")
@dataclass(frozen=True)
class Unanswered(Edit):
    """Move the target of a span that is not in the row to the row's summary token (Devlin et al., 2019, §4.3).

    This applies to rows with the target 0, "not here"; rows with a target below 0 keep no position. Put it after the frame, which
    inserts that token.
    """

    set: str = "answer"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}", f"positions/{self.set}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"positions/{self.set}"})

    @property
    def optional(self) -> frozenset[str]:
        return frozenset({"summary"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        positions = rows[f"positions/{self.set}"]
        summary = rows["summary"] if "summary" in rows else np.zeros(rows.count, positions.dtype)
        absent = rows[f"targets/{self.set}"] == 0
        return rows.having_all({f"positions/{self.set}": np.where(absent[:, None], summary[:, None], positions)})
