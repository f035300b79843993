"""Leave out the last items of a row that has too many, such as the regions that a detector is least sure of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cloze.bounds import Count, Natural, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.items.mismatch_items import set_of
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before


@register("edit", "limit_items")
@dataclass(frozen=True)
class LimitItems(Edit):
    """Keep at most the first `most` items of the set. With `confidence`, keep at most as many as have a higher `score`, that of
    the detector, if the items have scores: UNITER's code (ChenRocks/UNITER, `data/data.py`) reads those above 0.2, but 10 to 100.
    With `together`, keep only so many that a row has at most so many tokens and items: VL-BERT's code (jackroos/VL-BERT,
    `pretrain/data/datasets/conceptual_captions.py`) has 64 with the whole picture. `least` are kept in any case.

    The items that remain are the first of the file: write files in the order of their scores, the highest first. The tokens of a
    frame count where it comes before. A checkpoint keeps this edit, so commands and tasks read as many items as training did.
    """

    selects: ClassVar[bool] = True

    set: str = "regions"
    most: Count = 100
    together: Count | None = None
    least: Natural = 1
    confidence: Share | None = None

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"length", f"item_length/{self.set}"})

    @property
    def optional(self) -> frozenset[str]:
        return frozenset() if self.confidence is None else frozenset({f"item_vectors/{self.set}/score"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"item_length/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if f"items/{self.set}/masked" in rows:
            raise RecipeError("limit_items: cannot leave out items that mask_items has chosen; put limit_items before it.")
        length = rows[f"item_length/{self.set}"]
        count = np.minimum(length, self.most)
        scores = rows.get(f"item_vectors/{self.set}/score")
        if self.confidence is not None and scores is not None:
            sure = (scores[:, :, 0] > self.confidence) & columns_before(length, scores.shape[1])
            count = np.minimum(count, np.maximum(sure.sum(1), self.least))
        if self.together is not None:
            count = np.minimum(count, np.maximum(self.together - rows["length"], self.least))
        width = int(count.max(initial=0))
        names = [name for name in rows if "." not in name and set_of(name) == self.set and rows[name].ndim > 1]
        items = {name: rows[name][:, :width] for name in names}
        return rows.having_all({**items, f"item_length/{self.set}": count.astype(np.int32)})
