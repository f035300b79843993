"""Turn the tree of a record into targets: the head of every word and the relation to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "arcs")
@dataclass(frozen=True)
class Arcs(Edit):
    """Turn the tree of a record into targets: `targets/<heads>` and, for the relations, `targets/<set>`.

    Both are at the first token of every word in the row, because each word may be the head of another; a word whose head is
    outside the row or whose relation is unknown has weight 0. A head is 0 for the root, n for the n-th word of the row. Put it
    before `frame`, so that the positions move with the tokens.
    """

    targets_of_answer: ClassVar[bool] = True

    set: str = "label"
    heads: str = "head"
    column: str = "relation"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"column/{self.column}", "column/head", "words", "tokens"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(f"{field}/{name}" for field in ("targets", "positions", "weights") for name in (self.set, self.heads))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        relation, head = rows[f"column/{self.column}"], rows["column/head"]
        weights = ((relation >= 0) & (head >= 0)).astype(np.float32)
        arrays: dict[str, np.ndarray] = {}
        for name, targets in ((self.set, relation), (self.heads, head)):
            arrays |= {
                f"targets/{name}": np.maximum(targets, 0), f"positions/{name}": np.where(rows["words"] >= 0, rows["words"], -1),
                f"weights/{name}": weights,
            }
        return rows.having_all(arrays)
