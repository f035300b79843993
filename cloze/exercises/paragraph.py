"""Tell the network which paragraph a row belongs to, for networks with a vector of each paragraph."""

from __future__ import annotations

from dataclasses import dataclass

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "paragraph")
@dataclass(frozen=True)
class Paragraph(Edit):
    """Give `paragraph` (B,): the number of the row's document in the store, counted from 0 (Le and Mikolov, 2014, §2.2).

    Rows that were cut from one document share its number.
    """

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"document"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"paragraph"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.having(paragraph=rows["document"])
