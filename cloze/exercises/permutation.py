"""Permuted language modelling: a random order of prediction, as one integer per token (XLNet)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit, ExerciseKind
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("order", "permutation")
@dataclass(frozen=True)
class Permutation(Edit):
    """Give `order` (B, L): masked and special tokens in random order after all others (Yang et al., 2019, §2.2).

    Ordinary tokens that are not masked come first, together: they see each other and no masked token. `window`: `row`; `half`,
    where each half of a row is permuted by itself, the second half sees all of the first, and the first nothing of the second
    (their code, where the first half of a row is running text and the second half is read again); or a number of tokens.
    """

    window: Literal["row", "half"] | Count = "row"

    def __post_init__(self) -> None:
        if isinstance(self.window, int) and self.window < 2:
            raise RecipeError(f"order: permutation: window is {self.window}; expected row, half or at least 2 tokens.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "masked", "special"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"order"})

    @property
    def exercise(self) -> ExerciseKind:
        """The masked tokens in a random order."""
        return "permuted"

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        shape = rows["tokens"].shape
        columns = np.arange(shape[1])
        if self.window == "row":
            window = np.zeros(shape, np.int64)
        elif self.window == "half":
            window = (columns >= (rows["length"][:, None] + 1) // 2).astype(np.int64)
        else:
            window = np.broadcast_to(columns // self.window, shape)
        chosen = rows["masked"] | rows["special"]
        return rows.having(order=ordered(window, chosen, draw.bits("permutation", shape[1])))


def ordered(window: NDArray[Any], chosen: NDArray[np.bool_], ranks: NDArray[Any]) -> NDArray[np.int32]:
    """The order (B, L) of tokens in windows 0, 1, … (B, L): in each, first those not chosen, with one rank, then the chosen
    by `ranks`."""
    # One key for all: the window, then whether chosen, then the rank; columns settle equal ranks.
    keys = (window.astype(np.int64) << 33) | np.where(chosen, (1 << 32) | ranks.astype(np.int64), 0)
    sequence = np.argsort(keys, axis=1, kind="stable")  # (B, L): the columns in order
    # (B, L): its inverse, the rank of each column.
    rank = np.empty(sequence.shape, np.int32)
    np.put_along_axis(rank, sequence, np.broadcast_to(np.arange(sequence.shape[1], dtype=np.int32), sequence.shape), axis=1)
    # How many tokens earlier windows have, (B, windows): the rank that all context of a window shares.
    # Compared as (B, 1, L) with (windows, 1).
    first = np.sum(window[:, None, :] < np.arange(int(window.max(initial=0)) + 1)[:, None], axis=2, dtype=np.int32)
    return np.where(chosen, rank, np.take_along_axis(first, window.astype(np.int64), axis=1))
