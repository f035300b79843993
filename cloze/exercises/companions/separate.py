"""Put the two texts of a row into separate views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "separate")
@dataclass(frozen=True)
class Separate(Edit):
    """Move the second text of each row to the view `to`; the first one stays. Put a frame in each view after it.

    Each text may fill a whole row.
    """

    to: str = "passage"
    _room: int | None = None

    separates: ClassVar[bool] = True

    @property
    def makes(self) -> str:
        return self.to

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "parts"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    def max_input(self, length: int) -> int:
        """The tokens of both texts together: the source shortens the longer one; here each is cut to its own limit."""
        return 2 * length

    def for_length(self, length: int) -> Separate:
        """The same edit with `length` tokens for each text."""
        return replace(self, _room=length)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        parts = rows["parts"]
        bound = np.iinfo(np.int64).max if self._room is None else self._room
        first = _taken(rows["tokens"], parts[:, 0], bound)
        other = _taken(rows["tokens"], parts[:, 1], bound)
        reduced = Rows({**rows.without("parts"), **first}, checked=True)
        return reduced.with_view(self.to, other)


def _taken(tokens: NDArray[np.int32], part: NDArray[np.int64], most: int) -> Rows:
    """One part (B, 2) of each row, cut to `most` tokens."""
    length = np.minimum(part[:, 1] - part[:, 0], most).astype(np.int64)
    column = np.arange(max(int(length.max(initial=0)), 1))
    index = np.minimum(part[:, :1] + column, tokens.shape[1] - 1)
    ids = np.where(column < length[:, None], np.take_along_axis(tokens, index, axis=1), 0)
    return Rows({"tokens": ids.astype(np.int32), "length": length.astype(np.int32)}, checked=True)
