"""Ask for the labels of masked words, or of whole rows; "none" is a label, too."""

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


@register("edit", "predict_labels")
@dataclass(frozen=True)
class PredictLabels(Edit):
    """Make the label of a masked token in the annotation layer `layer` a target, as `show` numbers it: the label + 1, 0 for none
    (SentiLARE; Ke et al., 2020, §3.3).

    Asked are the masked tokens that some layer of `known` marks, by default `layer` alone: a noun without polarity is asked for
    its polarity, which is 0, and a word that is in no layer is not asked. `of: row` asks once for each row: for the label of its
    first token that has one. Gives `targets/<set>`, and `positions/<set>` for tokens or `weights/<set>` for rows, 0 for a row
    without a label; `set` defaults to the layer.
    """

    layer: str
    of: Literal["tokens", "row"] = "tokens"
    known: tuple[str, ...] = ()
    set: str | None = None

    def __post_init__(self) -> None:
        if self.of == "row" and self.known:
            raise RecipeError("predict_labels: known chooses among masked tokens; leave it out with of: row.")

    @property
    def takes(self) -> frozenset[str]:
        layers = {f"labels/{name}" for name in (self.layer, *self.known)}
        return frozenset({"tokens", "length", *layers} | ({"masked"} if self.of == "tokens" else set()))

    @property
    def gives(self) -> frozenset[str]:
        name = self.set or self.layer
        return frozenset({f"targets/{name}", f"positions/{name}" if self.of == "tokens" else f"weights/{name}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        name, labels = self.set or self.layer, rows[f"labels/{self.layer}"]
        real = columns_before(rows["length"], labels.shape[1])
        if self.of == "row":
            marked = real & (labels > 0)
            first = np.take_along_axis(labels, marked.argmax(1)[:, None], axis=1)[:, 0] if labels.shape[1] else labels.sum(1)
            labelled = np.asarray(marked.any(1))
            return rows.having_all({
                f"targets/{name}": np.where(labelled, first, 0).astype(np.int32), f"weights/{name}": labelled.astype(np.float32),
            })  # fmt: skip
        mask = np.zeros_like(real)
        for layer in self.known or (self.layer,):
            mask |= rows[f"labels/{layer}"] > 0
        mask &= real & rows["masked"]
        columns = columns_of(mask)
        chosen = columns_before(count_true(mask), columns.shape[1])
        targets = np.take_along_axis(labels, columns, axis=1) if labels.shape[1] else np.zeros_like(columns)
        return rows.having_all({
            f"targets/{name}": np.where(chosen, targets, 0).astype(np.int32),
            f"positions/{name}": np.where(chosen, columns, -1).astype(np.int32),
        })
