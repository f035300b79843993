"""Hide tokens of the text from the decoder although the encoder sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "hide")
@dataclass(frozen=True)
class Hide(Edit):
    """Give `crossing` (B, L), false at the masked tokens: the decoder does not see them (MASS, unsupervised code)."""

    what: Literal["masked"] = "masked"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"masked"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"crossing"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.having(crossing=~rows["masked"])
