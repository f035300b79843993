"""Show a row the items of another one, with whether text and items belong together as target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.companions.mismatch import chosen
from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "mismatch_items")
@dataclass(frozen=True)
class MismatchItems(Edit):
    """With probability `rate`, replace the items `sets` of a row, whole pictures, by those of the companion `wrong` (image-text
    matching; Chen et al., UNITER, 2020, §3.2).

    Gives the items of the row, `targets/<set>` (B,), 1 where they belong to the text and 0 where not, and `mismatched`, on which
    `label` and `ask_items` may depend. Put it before `mask_items`.
    """

    sets: tuple[str, ...] = ("regions",)
    wrong: str = "distractor"
    rate: Share = 0.5
    set: str = "match"

    def __post_init__(self) -> None:
        if not self.sets:
            raise RecipeError("mismatch_items: sets is empty; expected the names of sets of items, such as [regions].")

    @property
    def takes(self) -> frozenset[str]:
        lengths = {f"item_length/{name}" for name in self.sets}
        return frozenset(lengths | {f"{self.wrong}.{name}" for name in lengths})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}", "mismatched", *(f"item_length/{name}" for name in self.sets)})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if any(f"items/{name}/masked" in rows for name in self.sets):
            raise RecipeError("mismatch_items: cannot exchange items that mask_items has hidden; put mismatch_items before it.")
        changed: NDArray[np.bool_] = draw.uniform("mismatch_items") < self.rate
        names = [name for name in rows if "." not in name and set_of(name) in self.sets]
        wrong_names = [f"{self.wrong}.{name}" for name in names]
        items = {name: chosen(changed, rows[wrong], rows[name]) for name, wrong in zip(names, wrong_names, strict=True)}
        arrays = {f"targets/{self.set}": (~changed).astype(np.int32), "mismatched": changed}
        return rows.having_all(items | arrays)


def set_of(name: str) -> str | None:
    """The set of items that a field belongs to."""
    _, field, chosen = fields.split(name)
    return chosen.partition("/")[0] if field in ("items", "item_vectors", "item_length") else None
