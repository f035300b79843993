"""Turn the labels of a record, or of an annotation layer, into targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.units.question import slots
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, before, where


@register("edit", "label")
@dataclass(frozen=True)
class Label(Edit):
    """Turn the labels of a record, or of an annotation layer, into targets: gives `targets/<set>`.

    `of: row` makes one target for the whole row. `of: words` makes one for each word, at the word's first token; a word has no
    target if none of its tokens is in the row or its label is unknown. `of: units` makes one for each unit of the annotation
    layer `layer`, at the unit's first token, `of: tokens` one at each of its tokens; with `only: masked` what is not masked has
    none. `of: spans` makes one target for the spans that a record marks: `positions/<set>` (B, K) are the first and the last
    token of each span, and a row that does not contain all of them has no target. `of: texts` makes one target for two texts:
    `positions/<set>` (B, 4) are the first and the last token of each text, and a row without a token of one of them has no
    target. Put `label` before `frame` where it gives positions, so that they move with the tokens; the units of a layer move by
    themselves.
    """

    set: str = "label"
    of: Literal["row", "words", "spans", "texts", "units", "tokens"] = "row"
    column: str = "label"
    layer: str | None = None
    only: Literal["all", "masked"] = "all"

    def __post_init__(self) -> None:
        if (self.layer is not None) != (self.of in ("units", "tokens")):
            raise RecipeError(
                f"label: of is {self.of} and layer {self.layer}; an annotation layer has targets of: units or of: tokens."
            )
        if self.only != "all" and self.layer is None:
            raise RecipeError(f"label: only: {self.only} is for the units of an annotation layer; name it with layer.")

    @property
    def takes(self) -> frozenset[str]:
        if self.layer is not None:
            own = {"tokens", "length", f"layers/{self.layer}", f"labels/{self.layer}"}
            return frozenset(own | ({"masked"} if self.only == "masked" else set()))
        column = f"column/{self.column}"
        taken = {"texts": "parts"}.get(self.of, self.of)
        return frozenset({column} if self.of == "row" else {column, taken, "tokens"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}"} | ({f"positions/{self.set}"} if self.of != "row" else set()))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self.layer is not None:
            return self._of_layer(rows, self.layer)
        labels = rows[f"column/{self.column}"]
        if self.of == "row":
            return rows.having_all({f"targets/{self.set}": labels})
        if self.of == "spans":
            return rows.having_all({f"targets/{self.set}": labels, f"positions/{self.set}": rows["spans"]})
        if self.of == "texts":
            parts = rows["parts"]
            empty = parts[..., :1] >= parts[..., 1:]
            ends = np.where(empty, -1, np.stack([parts[..., 0], parts[..., 1] - 1], axis=-1))
            return rows.having_all({f"targets/{self.set}": labels, f"positions/{self.set}": ends.reshape(len(ends), -1)})
        asked = (rows["words"] >= 0) & (labels >= 0)
        return rows.having_all({
            f"targets/{self.set}": np.where(asked, labels, 0), f"positions/{self.set}": np.where(asked, rows["words"], -1),
        })  # fmt: skip

    def _of_layer(self, rows: Rows, layer: str) -> Rows:
        labels = rows[f"labels/{layer}"]
        asked = (labels > 0) & (begins(rows, layer) if self.of == "units" else before(rows["length"], labels.shape[1]))
        if self.only == "masked":
            asked &= rows["masked"]
        row, column = where(asked)
        number = np.bincount(row, minlength=rows.count)
        place = row, slots(number)
        targets = np.zeros((rows.count, int(number.max(initial=0))), np.int32)
        positions = np.full_like(targets, -1)
        targets[place], positions[place] = labels[row, column] - 1, column
        return rows.having_all({f"targets/{self.set}": targets, f"positions/{self.set}": positions})
