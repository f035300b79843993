"""Which examples share a row: best fit over the planned lengths, decided once per epoch, or once for each shard of a store.

A `Feed` with packing reads rows through `PackedRows`, or through the `PackedShards` of a source that reads several shards.
"""

from __future__ import annotations

from array import array
from bisect import insort
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.sources.plan import Packed, RowPlan
from cloze.errors import RecipeError
from cloze.rng import Draw
from cloze.rows import Rows

_LOOKAHEAD = 64  # rows that are open at a time
_LEAST = 4       # tokens: where fewer are left there is too little room for any example
_CHUNK = 1 << 16  # examples looked at together: bounds memory, not results


@dataclass(frozen=True)
class Packing:
    """Rows of `width` tokens, filled with examples whose passages may have `max_tokens` tokens; edits add the rest."""

    max_tokens: int
    width: int

    def __call__(self, length: NDArray[Any]) -> Packed:
        """The rows of examples whose passages have these lengths."""
        return pack(np.minimum(length, self.max_tokens) + (self.width - self.max_tokens), self.width)


@dataclass(frozen=True)
class PackedPlan:
    """One epoch: a plan of examples, and the rows that they are packed into."""

    examples: Any
    rows: Packed

    def __len__(self) -> int:
        return len(self.rows)


class PackedRows:
    """The rows of a source, several examples in each. Which examples share a row is decided again in every epoch."""

    def __init__(self, source: Any, packing: Packing) -> None:
        self.source, self.packing = source, packing

    def plan(self, epoch: int, max_tokens: int) -> PackedPlan:
        """The packed rows of an epoch. Raises `RecipeError` if the source plans no lengths."""
        plan = self.source.plan(epoch, max_tokens)
        if not isinstance(plan, RowPlan):
            raise RecipeError(
                "packing puts several examples into a row by the lengths that the source plans; this source plans none.\n"
                "  Write training: {packing: false}."
            )
        return PackedPlan(plan, self.packing(plan.passages.length[plan.order]))

    def read(self, plan: PackedPlan, rows: NDArray[np.int64], want: frozenset[str]) -> tuple[Rows, Draw, NDArray[np.int64]]:
        """The examples of some rows, row after row, their random numbers, and the row (0, 1, …) of each."""
        items, row_of = plan.rows.members_of(rows)
        return self.source.read(plan.examples, items, want), self.source.draw(plan.examples, items), row_of


def pack(length: NDArray[np.int64], width: int, lookahead: int = _LOOKAHEAD) -> Packed:
    """Pack examples into rows of `width` tokens.

    Greedy best fit over a window of `lookahead` open rows: an example goes into the oldest of the rows that it leaves least space
    in. A row leaves the window when it is full, or as the oldest if there are too many. The result is a pure function of the
    lengths.
    """
    with_space: list[list[int]] = [[] for _ in range(width + 1)]  # the open rows with that many tokens of space, oldest first
    spaces = 0  # a bit for every entry of `with_space` that has a row
    open_rows: dict[int, int] = {}  # their space, oldest first
    row_of, closed = array("q"), array("q")  # rows are numbered as they are opened, and in the order in which they are closed
    opened = 0
    for low in range(0, len(length), _CHUNK):
        for size in length[low : low + _CHUNK].tolist():
            fitting = spaces >> size
            if fitting:
                left = size + (fitting & -fitting).bit_length() - 1
                row = with_space[left].pop(0)
                if not with_space[left]:
                    spaces ^= 1 << left
                left -= size
            else:
                row, left, opened = opened, width - size, opened + 1
            row_of.append(row)
            if left < _LEAST:
                open_rows.pop(row, None)
                closed.append(row)
                continue
            open_rows[row] = left
            insort(with_space[left], row)
            spaces |= 1 << left
            if len(open_rows) > lookahead:
                oldest = next(iter(open_rows))
                left = open_rows.pop(oldest)
                with_space[left].remove(oldest)
                if not with_space[left]:
                    spaces ^= 1 << left
                closed.append(oldest)
    closed.extend(open_rows)
    # Rows in the order in which they were closed: `rank` (R,) by number of opening, `rows` (E,) by example.
    rank = np.empty(opened, np.int64)
    rank[np.asarray(closed)] = np.arange(opened)
    rows = rank[np.asarray(row_of)]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=opened))]).astype(np.int64)
    return Packed(starts, np.argsort(rows, kind="stable"))
