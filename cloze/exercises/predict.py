"""Decide what is asked: the masked tokens, the next token of every token, or every token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, where


@register("edit", "predict")
@dataclass(frozen=True)
class Predict:
    """Ask for tokens by place: gives `targets/<set>` and `places/<set>`, (B, K), place -1 for none.

    `masked`: the original token at every masked place. `next`: at each token but the last, the token that follows.
    `every`: every ordinary token at its own place.
    """

    what: Literal["masked", "next", "every"] = "masked"
    set: str = "main"

    @property
    def takes(self) -> frozenset[str]:
        own = {"masked": {"masked"}, "next": {"length"}, "every": {"length", "special"}}[self.what]
        return frozenset({"tokens"} | own)

    @property
    def optional(self) -> frozenset[str]:
        """Fields read when they are there: after `corrupt`, answers are the original tokens."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}", f"places/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        answers = rows["original"] if "original" in rows else rows["tokens"]
        if self.what == "next":
            columns = np.arange(answers.shape[1] - 1, dtype=np.int32)
            places = np.where(columns < rows["length"][:, None] - 1, columns, np.int32(-1))
            return self._asked(rows, answers[:, 1:], places)
        if self.what == "masked":
            chosen = rows["masked"]
        else:
            chosen = (np.arange(answers.shape[1]) < rows["length"][:, None]) & ~rows["special"]
        row, column = where(chosen)
        number = np.bincount(row, minlength=len(chosen))
        slot = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
        places = np.full((len(chosen), int(number.max(initial=0))), -1, np.int32)
        targets = np.zeros(places.shape, np.int32)
        places[row, slot] = column
        targets[row, slot] = answers[row, column]
        return self._asked(rows, targets, places)

    def _asked(self, rows: Rows, targets: NDArray[Any], places: NDArray[Any]) -> Rows:
        return rows.having_all({f"targets/{self.set}": targets, f"places/{self.set}": places})
