"""Turn the numbers of a record into targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "value")
@dataclass(frozen=True)
class Value(Edit):
    """Turn the numbers of a record into targets of the whole row: gives `values/<set>`."""

    targets_of_answer: ClassVar[bool] = True

    set: str = "label"
    column: str = "label"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"numbers/{self.column}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"values/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.having_all({f"values/{self.set}": rows[f"numbers/{self.column}"]})
