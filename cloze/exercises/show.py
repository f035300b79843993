"""Show the network labels of an annotation layer, or of a record, as further ids of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "show")
@dataclass(frozen=True)
class Show(Edit):
    """Give `inputs/<set>` (B, L): the label + 1 of each token's unit in the annotation layer `layer`, 0 outside; or with `column`
    that of the row's record, at every token of the text (SentiLARE, Ke et al., 2020). `set` defaults to that name.

    A token does not show the label of its unit if it is hidden: if it is masked, and `corrupt` has not kept it. The label of a
    record is shown at hidden tokens, too; so is that of a layer with `hidden`, for units of whole texts.
    """

    shows: ClassVar[bool] = True

    layer: str | None = None
    column: str | None = None
    set: str | None = None
    hidden: bool = False

    def __post_init__(self) -> None:
        if (self.layer is None) == (self.column is None):
            raise RecipeError("show: expected the name of a layer or of a column, one of them.")
        if self.hidden and self.layer is None:
            raise RecipeError("show: hidden is for layers; the label of a record is always shown at hidden tokens.")

    @property
    def takes(self) -> frozenset[str]:
        names = {f"layers/{self.layer}", f"labels/{self.layer}"} if self.layer is not None else {f"column/{self.column}"}
        return frozenset({"tokens", *names})

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: what is hidden, and what the frame inserted."""
        if self.layer is None:
            return frozenset({"special"})
        return frozenset() if self.hidden else frozenset({"masked", "original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"inputs/{self.set or self.layer or self.column}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        (name,) = self.gives
        if self.column is not None:
            classes = np.broadcast_to(rows[f"column/{self.column}"][:, None] + 1, rows["tokens"].shape)
            classes = np.where(rows["special"], 0, classes) if "special" in rows else classes
            return rows.having_all({name: classes.astype(np.int32)})
        labels = rows[f"labels/{self.layer}"].astype(np.int32)
        if self.hidden or "masked" not in rows:
            return rows.having_all({name: labels})
        hidden = rows["masked"]
        if "original" in rows:
            hidden = hidden & (rows["tokens"] != rows["original"])
        return rows.having_all({name: np.where(hidden, np.int32(0), labels)})
