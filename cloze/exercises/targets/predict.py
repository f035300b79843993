"""Set the targets: the masked tokens, the shuffled ones, the next or the previous token, or every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit, ExerciseKind
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, true_positions


@register("edit", "predict")
@dataclass(frozen=True)
class Predict(Edit):
    """Set the targets: gives `targets/<set>` and `positions/<set>`, (B, K), position -1 for none.

    `masked`: the original token at every masked position; `shuffled` (StructBERT): at every position that `shuffle` changed.
    `next`: at each token except the last, the token that follows; `previous`: at each except the first, the token before it
    (ELMo). `every`: every ordinary token at its own position; `all`: special tokens, too (distillation). `shift: 1` predicts a
    token one position earlier, as a causal head does (GPT-BERT, Charpentier & Samuel, 2024); the first token of a row then has no
    target. With `weigh: rows` the targets of a row together weigh 1: gives `weights/<set>` (B, K), so that the loss is a mean
    over rows of the means over their tokens (openai/finetune-transformer-lm `train.py`, `lm_losses`). `unless: mismatched`: rows
    that `mismatch` or `mismatch_items` has given a wrong text or wrong items have no targets (Unicoder-VL; Li et al., 2020).
    """

    what: Literal["masked", "shuffled", "next", "previous", "every", "all"] = "masked"
    set: str = "main"
    shift: int = 0
    weigh: Literal["targets", "rows"] = "targets"
    unless: Literal["never", "mismatched"] = "never"

    def __post_init__(self) -> None:
        if self.shift < 0 or (self.shift and self.what in ("next", "previous")):
            raise RecipeError(f"predict: shift {self.shift} with what: {self.what}, which is shifted by one position already.")
        if self.unless != "never" and self.what in ("next", "previous"):
            raise RecipeError(f"predict: unless: {self.unless} is not for what: {self.what}. Use it with masked tokens.")

    @property
    def takes(self) -> frozenset[str]:
        fields = {
            "masked": {"masked"}, "shuffled": {"layers/shuffled"}, "next": {"length"}, "previous": {"length"},
            "every": {"length", "special"}, "all": {"length"},
        }
        names = fields[self.what]
        return frozenset({"tokens"} | names | ({"mismatched"} if self.unless == "mismatched" else set()))

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: after `corrupt`, targets are the original tokens."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        weights = {f"weights/{self.set}"} if self.weigh == "rows" else set()
        return frozenset({f"targets/{self.set}", f"positions/{self.set}", *weights})

    @property
    def exercise(self) -> ExerciseKind:
        """Tokens in their order are read in one direction; any others are read around the targets."""
        return "causal" if self.what in ("next", "previous") else "masked"

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        originals = rows["original"] if "original" in rows else rows["tokens"]
        if self.what == "next":
            columns = np.arange(originals.shape[1] - 1, dtype=np.int32)
            positions = np.where(columns < rows["length"][:, None] - 1, columns, np.int32(-1))
            return self._with_targets(rows, originals[:, 1:], positions)
        if self.what == "previous":
            columns = np.arange(1, originals.shape[1], dtype=np.int32)
            positions = np.where(columns < rows["length"][:, None], columns, np.int32(-1))
            return self._with_targets(rows, originals[:, :-1], positions)
        if self.what == "masked":
            chosen = rows["masked"]
        elif self.what == "shuffled":
            chosen = rows["layers/shuffled"] > 0
        else:
            chosen = np.arange(originals.shape[1]) < rows["length"][:, None]
            chosen = chosen & ~rows["special"] if self.what == "every" else chosen
        if self.unless == "mismatched":
            chosen = chosen & ~rows["mismatched"][:, None]
        if self.shift:
            chosen = chosen.copy()
            chosen[:, : self.shift] = False
        at, row, column = true_positions(chosen)
        number = np.bincount(row, minlength=len(chosen))
        most = int(number.max(initial=0))
        positions = np.full((len(chosen), most), -1, np.int32)
        targets = np.zeros(positions.shape, np.int32)
        slots = columns_before(number, most).reshape(-1).nonzero()[0]  # row by row, as the positions are
        positions.reshape(-1)[slots] = column - self.shift
        targets.reshape(-1)[slots] = originals.take(at)
        return self._with_targets(rows, targets, positions)

    def _with_targets(self, rows: Rows, targets: NDArray[Any], positions: NDArray[Any]) -> Rows:
        fields = {f"targets/{self.set}": targets, f"positions/{self.set}": positions}
        if self.weigh == "rows":
            present = positions >= 0
            fields[f"weights/{self.set}"] = (present / np.maximum(present.sum(axis=1, keepdims=True), 1)).astype(np.float32)
        return rows.having_all(fields)
