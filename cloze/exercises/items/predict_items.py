"""Ask for the items that are linked to tokens, such as the entities that a text names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, rows_and_columns


@register("edit", "predict_items")
@dataclass(frozen=True)
class PredictItems(Edit):
    """Make the item of every token that `items/<set>` links to an item a target (Zhang et al., ERNIE, 2019, §3.4).

    Gives `targets/<set>` and `positions/<set>` (B, E), -1 for no target. Put it before `corrupt_items`, which changes what the
    network reads; items that this keeps are asked, too, as in the authors' code.
    """

    set: str = "entity"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"items/{self.set}", f"links/{self.set}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}", f"positions/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        items, links = rows[f"items/{self.set}"], rows[f"links/{self.set}"]
        targets, positions = (np.full(links.shape[:2], -1, np.int32) for _ in range(2))
        row, slot = rows_and_columns(links[:, :, 0] >= 0)
        numbers = items[row, links[row, slot, 1]]
        real = numbers > 0
        targets[row[real], slot[real]] = numbers[real]
        positions[row[real], slot[real]] = links[row[real], slot[real], 0]
        return rows.having_all({f"targets/{self.set}": targets, f"positions/{self.set}": positions})
