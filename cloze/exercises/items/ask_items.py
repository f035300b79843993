"""Ask what the items of a row are: their classes or their vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import columns_of
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true


@register("edit", "ask_items")
@dataclass(frozen=True)
class AskItems(Edit):
    """Make the array `array` of the items `items` a target: for those that `mask_items` has chosen, or for `all`.

    `features` and other arrays of numbers give `values/<set>`, arrays of whole numbers such as `class` give `targets/<set>`; an
    item whose number is negative is not asked. Positions become flat indices into the state of the items (rows, items).
    `weigh` names an array of one number for each item, such as the confidence of a detector, which becomes `weights/<set>`
    (Tan and Bansal, LXMERT, 2019; in the authors' code the classes of all regions are asked with these weights).
    `unless: mismatched`: nothing is asked in a row whose text and items do not belong together. `set` defaults to the array.
    """

    array: str = "features"
    items: str = "regions"
    kind: Literal["numbers", "classes"] = "classes"
    of: Literal["masked", "all"] = "masked"
    weigh: str | None = None
    unless: Literal["never", "mismatched"] = "never"
    set: str | None = None

    @property
    def name(self) -> str:
        """The set of targets."""
        return self.set or self.array

    @property
    def _source(self) -> str:
        if self.array == "features":
            return f"item_originals/{self.items}" if self.of == "masked" else f"item_vectors/{self.items}"
        return f"{'items' if self.kind == 'classes' else 'item_vectors'}/{self.items}/{self.array}"

    @property
    def whole(self) -> bool:
        """Whether the array holds classes."""
        return self.kind == "classes" and self.array != "features"

    @property
    def takes(self) -> frozenset[str]:
        names = {self._source, f"item_length/{self.items}"}
        names |= {f"items/{self.items}/masked"} if self.of == "masked" else set()
        names |= {f"item_vectors/{self.items}/{self.weigh}"} if self.weigh else set()
        return frozenset(names | ({"mismatched"} if self.unless == "mismatched" else set()))

    @property
    def gives(self) -> frozenset[str]:
        weights = {f"weights/{self.name}"} if self.weigh else set()
        target = f"{'targets' if self.whole else 'values'}/{self.name}"
        return frozenset({target, f"item_positions/{self.items}/{self.name}"} | weights)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self._source not in rows:
            raise RecipeError(
                f"ask_items: the items {self.items!r} have no {self.array!r} of {self.kind}. Is it kind: "
                f"{'numbers' if self.kind == 'classes' else 'classes'}, or missing in corpus.items?"
            )
        values = rows[self._source]
        mask = columns_before(rows[f"item_length/{self.items}"], values.shape[1])
        if self.of == "masked":
            mask &= rows[f"items/{self.items}/masked"] > 0
        if self.whole:
            mask &= values >= 0
        if self.unless == "mismatched":
            mask &= ~rows["mismatched"][:, None]
        columns = columns_of(mask)
        real = columns_before(count_true(mask), columns.shape[1])
        row = np.arange(len(columns))[:, None]
        labels = values[row, columns]
        target = f"{'targets' if self.whole else 'values'}/{self.name}"
        arrays = {target: labels, f"item_positions/{self.items}/{self.name}": np.where(real, columns, -1).astype(np.int32)}
        if self.weigh:
            arrays[f"weights/{self.name}"] = rows[f"item_vectors/{self.items}/{self.weigh}"][row, columns, 0]
        return rows.having_all(arrays)
