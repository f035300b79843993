"""Predict words from their neighbours: word2vec's windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "windows")
@dataclass(frozen=True)
class WindowPairs(Edit):
    """Pair each word with those at most `radius` words away (Mikolov et al., 2013a, §3).

    Gives `targets/<set>` and `positions/<set>`.

    `shrink: uniform` draws each centre's own radius from 1 … `radius`, so that a word at distance d counts
    (radius - d + 1) / radius; `none` takes all. `ask: context` predicts at each centre every word around it, one after another
    (the paper, fastText's code); `centre` predicts the centre at every word around it: the same pairs in another order
    (word2vec's code). `together` predicts each centre once, from all words around it (CBOW): `centers` and `contexts` (B, K)
    are then the columns of the pairs, -1 for none, and a centre without neighbours has no target.
    """

    radius: Count = 5
    shrink: Literal["uniform", "none"] = "uniform"
    ask: Literal["context", "centre"] = "centre"
    together: bool = False
    set: str = "main"

    def __post_init__(self) -> None:
        if self.radius < 1:
            raise RecipeError(f"windows: radius {self.radius}; expected at least 1.")
        if self.together and self.ask != "centre":
            raise RecipeError("windows: together predicts the centre. Write `ask: centre`, or leave out `together`.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def gives(self) -> frozenset[str]:
        pairs = {"centers", "contexts"} if self.together else frozenset()
        return frozenset({f"targets/{self.set}", f"positions/{self.set}"}) | pairs

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens = rows["tokens"]
        centres, contexts = self.pairs(tokens.shape[1], rows["length"], draw)
        if self.together:
            columns = np.arange(tokens.shape[1], dtype=np.int32)
            mask = np.zeros(tokens.shape, np.bool_)
            row, slot = np.nonzero(centres >= 0)
            mask[row, centres[row, slot]] = True
            arrays = {"centers": centres, "contexts": contexts, f"positions/{self.set}": np.where(mask, columns, np.int32(-1))}
            return rows.having_all({**arrays, f"targets/{self.set}": np.where(mask, tokens, 0)})
        positions, asked_for = (centres, contexts) if self.ask == "context" else (contexts, centres)
        targets = np.take_along_axis(tokens, np.maximum(asked_for, 0), axis=1) if positions.shape[1] else positions
        return rows.having_all({f"positions/{self.set}": positions, f"targets/{self.set}": np.where(positions >= 0, targets, 0)})

    def pairs(
        self, width: int, length: NDArray[np.integer], draw: Draw
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The columns of centres and of their context words (B, K), centre by centre, from left to right; -1 for none."""
        offsets = np.concatenate([np.arange(-self.radius, 0), np.arange(1, self.radius + 1)]).astype(np.int32)
        columns = np.arange(width, dtype=np.int32)
        other = columns[:, None] + offsets                                  # (L, 2R)
        exists = (columns < length[:, None])[:, :, None] & (other >= 0) & (other < length[:, None, None])
        if self.shrink == "uniform":
            radius = draw.integers("windows", self.radius, width) + 1       # (B, L)
            exists &= np.abs(offsets) <= radius[:, :, None]
        number = np.count_nonzero(exists.reshape(len(length), -1), axis=1)
        flat = np.flatnonzero(exists)
        row, position = np.divmod(flat, max(width * len(offsets), 1))
        slot = np.arange(len(flat)) - np.repeat(np.cumsum(number) - number, number)
        centres = np.full((len(length), int(number.max(initial=0))), -1, np.int32)
        contexts = centres.copy()
        centres[row, slot] = position // len(offsets)
        contexts[row, slot] = other.reshape(-1)[position]
        return centres, contexts
