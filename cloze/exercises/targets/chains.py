"""Turn the coreference chains of a record into targets: its words, and where its mentions begin and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "chains")
@dataclass(frozen=True)
class ChainTargets(Edit):
    """Turn the coreference chains of a record into targets.

    `positions/<set>` are the first tokens of all words in the row, of which any two may begin and end a mention; their targets
    are 0. `positions/<set>_first` and `positions/<set>_last` are the first and the last word of each mention, and the targets of
    both the number of its chain. A mention that the row does not contain whole is left out. Put it before `frame`, so that the
    positions move with the tokens.
    """

    targets_of_answer: ClassVar[bool] = True

    set: str = "chains"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"column/chain", "spans", "words", "tokens"})

    @property
    def gives(self) -> frozenset[str]:
        sets = (self.set, f"{self.set}_first", f"{self.set}_last")
        return frozenset(f"{field}/{name}" for field in ("targets", "positions") for name in sets)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        chain, words = rows["column/chain"], rows["words"]
        spans = rows["spans"].reshape(*chain.shape, 2)
        visible = (chain >= 0) & (spans >= 0).all(axis=2)
        arrays = {f"targets/{self.set}": np.zeros_like(words), f"positions/{self.set}": np.where(words >= 0, words, -1)}
        for side, name in enumerate(("first", "last")):
            arrays |= {
                f"targets/{self.set}_{name}": np.where(visible, chain, 0),
                f"positions/{self.set}_{name}": np.where(visible, spans[:, :, side], -1),
            }
        return rows.having_all(arrays)
