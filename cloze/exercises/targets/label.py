"""Turn the labels of a record, or of an annotation layer, into targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.units.unit_request import slots
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns


@register("edit", "label")
@dataclass(frozen=True)
class Label(Edit):
    """Turn the labels of a record, or of an annotation layer, into targets: gives `targets/<set>`.

    `of: row` makes one target for the whole row; `collate` adds its position. `of: words` makes one for each word, at the word's
    first token; a word has no target if none of its tokens is in the row or its label is unknown. `of: units` makes one for each
    unit of the annotation layer `layer`, at the unit's first token, `of: tokens` one at each of its tokens; with `only: masked`
    what is not masked has none. `of: around` reads a unit from outside: `positions/<set>` is the token before it and
    `positions/<set>_right`, with the same targets, the one after it; a unit at the end of a row has none. `of: spans` makes one
    target for the spans that a record marks: `positions/<set>` (B, K) are the first and the last token of each span, and a row
    that does not contain all of them has no target. `of: texts` makes one target for two texts: `positions/<set>` (B, 4) are the
    first and the last token of each text, and a row without a token of one of them has no target. Put `label` before `frame`
    where it gives positions, so that they move with the tokens; the units of a layer move by themselves, and `of: around` stands
    after `frame`.

    `unless: mismatched` is for `of: row`. A row whose label is unknown, or that `mismatch` or `mismatch_items` has given a wrong
    text or wrong items, then has no target: `positions/<set>` (B,) is -1 there.
    """

    targets_of_answer: ClassVar[bool] = True

    set: str = "label"
    of: Literal["row", "words", "spans", "texts", "units", "tokens", "around"] = "row"
    column: str = "label"
    layer: str | None = None
    only: Literal["all", "masked"] = "all"
    unless: Literal["never", "mismatched"] = "never"

    def __post_init__(self) -> None:
        if (self.layer is not None) != (self.of in ("units", "tokens", "around")):
            raise RecipeError(
                f"label: of is {self.of} and layer {self.layer}; an annotation layer has targets of: units, tokens or around."
            )
        if self.only != "all" and self.layer is None:
            raise RecipeError(f"label: only: {self.only} is for the units of an annotation layer; name it with layer.")
        if self.unless != "never" and self.of != "row":
            raise RecipeError(f"label: unless: {self.unless} is for labels of: row, not of: {self.of}.")

    @property
    def takes(self) -> frozenset[str]:
        if self.layer is not None:
            names = {"tokens", "length", f"layers/{self.layer}", f"labels/{self.layer}"}
            return frozenset(names | ({"masked"} if self.only == "masked" else set()))
        column = f"column/{self.column}"
        source = {"texts": "parts"}.get(self.of, self.of)
        if self.of == "row":
            return frozenset({column, "mismatched"} if self.unless == "mismatched" else {column})
        return frozenset({column, source, "tokens"})

    @property
    def gives(self) -> frozenset[str]:
        sets = (self.set, f"{self.set}_right") if self.of == "around" else (self.set,)
        fields = ("targets",) if self.of == "row" and self.unless == "never" else ("targets", "positions")
        return frozenset(f"{field}/{name}" for field in fields for name in sets)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        if self.layer is not None:
            return self._of_layer(rows, self.layer)
        labels = rows[f"column/{self.column}"]
        if self.of == "row" and self.unless == "never":
            return rows.having_all({f"targets/{self.set}": labels})
        if self.of == "row":
            real = ~rows["mismatched"] & (labels >= 0)
            return rows.having_all({
                f"targets/{self.set}": np.where(real, labels, 0), f"positions/{self.set}": np.where(real, 0, -1).astype(np.int32),
            })  # fmt: skip
        if self.of == "spans":
            return rows.having_all({f"targets/{self.set}": labels, f"positions/{self.set}": rows["spans"]})
        if self.of == "texts":
            parts = rows["parts"]
            empty = parts[..., :1] >= parts[..., 1:]
            ends = np.where(empty, -1, np.stack([parts[..., 0], parts[..., 1] - 1], axis=-1))
            return rows.having_all({f"targets/{self.set}": labels, f"positions/{self.set}": ends.reshape(len(ends), -1)})
        labelled = (rows["words"] >= 0) & (labels >= 0)
        return rows.having_all({
            f"targets/{self.set}": np.where(labelled, labels, 0), f"positions/{self.set}": np.where(labelled, rows["words"], -1),
        })  # fmt: skip

    def _of_layer(self, rows: Rows, layer: str) -> Rows:
        labels, inside = rows[f"labels/{layer}"], columns_before(rows["length"], rows["tokens"].shape[1])
        labelled = (labels > 0) & (inside if self.of == "tokens" else begins(rows, layer))
        if self.only == "masked":
            labelled &= rows["masked"]
        row, column = rows_and_columns(labelled)
        sides = {self.set: column}
        if self.of == "around":
            after = _ends(rows, layer)[row, column]
            real = (column > 0) & (after < rows["length"][row])
            row, column, after = row[real], column[real], after[real]
            sides = {self.set: column - 1, f"{self.set}_right": after}
        number = np.bincount(row, minlength=rows.count)
        index = row, slots(number)
        arrays: dict[str, NDArray[np.int32]] = {}
        for name, at in sides.items():
            targets = np.zeros((rows.count, int(number.max(initial=0))), np.int32)
            positions = np.full_like(targets, -1)
            targets[index], positions[index] = labels[row, column] - 1, at
            arrays |= {f"targets/{name}": targets, f"positions/{name}": positions}
        return rows.having_all(arrays)


def _ends(rows: Rows, layer: str) -> NDArray[np.int64]:
    """(B, L) the column after the unit that each token is in."""
    marks = rows[f"layers/{layer}"]
    goes_on = np.zeros((len(marks), marks.shape[1] + 1), bool)
    goes_on[:, : marks.shape[1]] = (marks > 0) & ~begins(rows, layer) & columns_before(rows["length"], marks.shape[1])
    column = np.arange(goes_on.shape[1])
    stops = np.where(goes_on, goes_on.shape[1], column)
    return np.minimum.accumulate(stops[:, ::-1], axis=1)[:, ::-1][:, 1:]
