"""Hide items of a row, such as regions of a picture, from the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Natural, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns


@register("edit", "mask_items")
@dataclass(frozen=True)
class MaskItems(Edit):
    """Choose each item of the set with probability `rate`, and hide its vector (Lu et al., ViLBERT, 2019, §3.1; Chen et
    al., UNITER, 2020, §3.2).

    The vector of a chosen item becomes zeros with probability `zero`, and with probability `other` that of a random item of the
    companion `distractor`, the picture of another row; else it stays, with probability `keep`. Its box stays. `least`: of a row
    in which chance has chosen fewer items, further random ones are chosen. `overlap`: an item that is not chosen also becomes
    zeros if its box and that of a chosen one share more than this part of their union, because it shows nearly the same.

    Gives `items/<set>/masked`, 1 for chosen items, `item_vectors/<set>` as the network sees it, and `item_originals/<set>`. The
    edit `ask_items` makes targets of them.
    """

    hides: ClassVar[bool] = True

    set: str = "regions"
    rate: Share = 0.15
    zero: Share = 0.9
    other: Share = 0.0
    keep: Share = 0.1
    least: Natural = 0
    overlap: Share | None = None

    def __post_init__(self) -> None:
        if abs(self.zero + self.other + self.keep - 1) > 1e-6:
            raise RecipeError(f"mask_items: zero, other and keep must add up to 1, got {self.zero} + {self.other} + {self.keep}.")
        if self.least < 0:
            raise RecipeError(f"mask_items: least is {self.least}; expected 0 or more items.")

    @property
    def takes(self) -> frozenset[str]:
        names = {f"item_vectors/{self.set}", f"item_length/{self.set}"}
        wrong = {f"distractor.{name}" for name in names} if self.other else set()
        return frozenset(names | wrong | ({f"item_vectors/{self.set}/boxes"} if self.overlap is not None else set()))

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"items/{self.set}/masked", f"item_vectors/{self.set}", f"item_originals/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        vectors = rows[f"item_vectors/{self.set}"]
        count, width = rows[f"item_length/{self.set}"], vectors.shape[1]
        real = columns_before(count, width)
        chance = draw.uniform("mask_items", width)
        chosen = real & (chance < self.rate)
        if self.least:
            rank = np.where(real, chance, 2.0).argsort(axis=1).argsort(axis=1)
            chosen |= real & (rank < self.least)
        row, column = rows_and_columns(chosen)
        coin = draw.bits_at("mask_items.how", row, column) / 2.0**32
        hidden, inputs = coin < self.zero, vectors.copy()
        inputs[row[hidden], column[hidden]] = 0
        if self.other:
            self._exchange(rows, draw, inputs, row, column, (coin >= self.zero) & (coin < self.zero + self.other))
        if self.overlap is not None:
            near = overlaps(rows[f"item_vectors/{self.set}/boxes"], chosen) > self.overlap
            inputs[near & real & ~chosen] = 0
        return rows.having_all({
            f"items/{self.set}/masked": chosen.astype(np.int32), f"item_vectors/{self.set}": inputs,
            f"item_originals/{self.set}": vectors,
        })  # fmt: skip

    def _exchange(
        self, rows: Rows, draw: Draw, vectors: NDArray[Any], row: NDArray[np.intp], column: NDArray[np.intp],
        which: NDArray[np.bool_],
    ) -> None:
        """Give the chosen items (row, column) that are to be exchanged the vector of an item of another picture."""
        row, column = row[which], column[which]
        item_count = rows[f"distractor.item_length/{self.set}"][row]
        row, column, item_count = row[item_count > 0], column[item_count > 0], item_count[item_count > 0]
        drawn = draw.bits_at("mask_items.other", row, column).astype(np.int64) * item_count >> 32
        vectors[row, column] = rows[f"distractor.item_vectors/{self.set}"][row, drawn]


def overlaps(boxes: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[np.float32]:
    """For each item (B, R) the largest share, intersection over union, of its box with that of a chosen item of its row."""
    zeros = np.zeros(chosen.shape, np.float32)
    if not chosen.size:
        return zeros
    low = np.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = np.minimum(boxes[:, :, None, 2:4], boxes[:, None, :, 2:4])
    common = np.prod(np.maximum(high - low, 0), axis=-1)
    area = np.prod(np.maximum(boxes[..., 2:4] - boxes[..., :2], 0), axis=-1)
    union = area[:, :, None] + area[:, None, :] - common
    share = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return np.where(chosen[:, None, :], share, 0).max(axis=2, initial=0).astype(np.float32)
