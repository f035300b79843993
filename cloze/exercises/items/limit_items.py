"""Leave out the last items of a row that has too many, such as the regions that a detector is least sure of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.bounds import Count, Natural
from cloze.exercises.edit import Edit
from cloze.exercises.items.mismatch_items import set_of
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "limit_items")
@dataclass(frozen=True)
class LimitItems(Edit):
    """Keep at most the first `most` items of the set (UNITER's code, ChenRocks/UNITER `data/data.py`, has 100), and only so many
    that a row has at most `together` tokens and items, but `least` of them in any case (VL-BERT's code, jackroos/VL-BERT
    `pretrain/data/datasets/conceptual_captions.py`, where `together` is 64 with the whole picture).

    The tokens of a frame count where it comes before.
    """

    set: str = "regions"
    most: Count = 100
    together: Count | None = None
    least: Natural = 1

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"length", f"item_length/{self.set}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"item_length/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        count = rows[f"item_length/{self.set}"]
        count = np.minimum(count, self.most)
        if self.together is not None:
            count = np.minimum(count, np.maximum(self.together - rows["length"], self.least))
        width = int(count.max(initial=0))
        names = [name for name in rows if "." not in name and set_of(name) == self.set and rows[name].ndim > 1]
        items = {name: rows[name][:, :width] for name in names}
        return rows.having_all({**items, f"item_length/{self.set}": count.astype(np.int32)})
