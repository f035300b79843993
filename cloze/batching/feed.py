"""Makes the examples of one entry: from a bound source through the exercise to the arrays of micro-batches, in numpy.

Follow a row through `Feed.micro_batches`: `examples` reads passages from the source and applies the edits, `laid_out` cuts the
block into micro-batches and calls `collate`. `data.py` decides which rows a step has.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.batching.collate import Arrays, collate, one_per_row, pad_targets, several_per_row
from cloze.batching.packing import PackedRows, Packing
from cloze.corpus.shards.packed import PackedShards
from cloze.corpus.shards.sharded import BoundShards
from cloze.corpus.sources.bound import BoundSource
from cloze.exercises.exercise import Exercise, PlacedEdit
from cloze.rows import Rows


class Cursor(NamedTuple):
    """The position of an entry in its data: the epoch and the next row of it. This is the complete state of the data."""

    epoch: int = 0
    row: int = 0


class MicroArrays(NamedTuple):
    """A micro-batch as arrays: full field names → arrays, its real tokens and its examples, and the number of rows of the step
    before it."""

    arrays: Arrays
    tokens: int
    examples: int
    first_row: int = 0


@runtime_checkable
class InLanes(Protocol):
    """A bound source whose rows continue from step to step: row i of each step continues lane i."""

    lanes: int


@runtime_checkable
class Spreading(Protocol):
    """A bound source that makes several rows of each item; the `owner` of a row is its item. Such rows cannot be packed."""

    def widths(self, plan: Any, items: NDArray[np.int64]) -> NDArray[np.int64]: ...


class Feed:
    """Makes the rows of one entry, at one length.

    A row of the batch holds one example, or, with `packing`, several. Which examples make up a row is a pure function of (seed,
    entry, epoch), or of the shard that they are in; `row_count(epoch)` says how many there are. Rows are made in blocks of many
    examples, which spreads numpy's fixed cost per call (measured: three times the rows per second).

    Args:
        takes: the token-aligned fields that a batch gets.
        padding: the id of padding.
        fixed: every row but that of a second sequence has `length` tokens, as compiled networks require; else as many as the
            longest row of its micro-batch.
        targets_multiple: every set of targets is padded to a multiple of this number.
    """

    def __init__(
        self, source: BoundSource[Any], edits: Sequence[PlacedEdit], *, length: int, takes: frozenset[str], padding: int,
        packing: bool = False, fixed: bool = False, targets_multiple: int = 1,
    ) -> None:
        self.source = source
        self.edits = tuple(edits)
        self.exercise = Exercise(edits, length, packed=packing)
        if isinstance(source, BoundSource):
            source.require(self.exercise.wants)
        self.length = length
        self.takes = takes
        self.padding = padding
        self.packing = packing
        self.fixed = fixed
        self.targets_multiple = targets_multiple
        self._packed = self._packed_source() if packing else None
        self._plans = lru_cache(maxsize=2)(self._make_plan)

    def for_length(self, length: int) -> Feed:
        """The same feed for rows of another length."""
        return Feed(
            self.source, self.edits, length=length, takes=self.takes, padding=self.padding, packing=self.packing,
            fixed=self.fixed, targets_multiple=self.targets_multiple,
        )

    @property
    def spreads(self) -> bool:
        """Whether several rows of the batch are made of one row of the plan."""
        return self.exercise.spread is not None or isinstance(self.source, Spreading)

    @property
    def is_scheduled(self) -> bool:
        """Whether the exercise follows a schedule, so that a row depends on when it is made."""
        return self.exercise.is_scheduled

    def when(self, share: float) -> Feed:
        """The same feed at a share of the budget, with the same plans."""
        if not self.is_scheduled:
            return self
        feed = object.__new__(Feed)
        feed.__dict__.update(self.__dict__, exercise=self.exercise.when(share))
        return feed

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_plans"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plans = lru_cache(maxsize=2)(self._make_plan)

    def _packed_source(self) -> PackedRows | PackedShards:
        source, packing = self.source, Packing(self.exercise.max_tokens, self.length)
        return PackedShards(source, packing) if isinstance(source, BoundShards) else PackedRows(source, packing)

    def _make_plan(self, epoch: int) -> Any:
        """The plan of an epoch: of packed rows, if rows are packed, else that of the source."""
        return (self.source if self._packed is None else self._packed).plan(epoch, self.exercise.max_tokens)

    def row_count(self, epoch: int) -> int:
        """How many rows the epoch has."""
        return len(self._plans(epoch))

    def advance(self, cursor: Cursor, count: int) -> tuple[list[tuple[int, NDArray[np.int64]]], Cursor]:
        """The next `count` rows as stretches, (epoch, row numbers) each, across epochs if necessary, and the next cursor."""
        stretches = []
        epoch, row = cursor
        while count:
            left = self.row_count(epoch) - row
            if left <= 0:
                epoch, row = epoch + 1, 0
                continue
            number = min(count, left)
            numbers = np.arange(row, row + number)
            stretches.append((epoch, self.source.by_lane(numbers) if isinstance(self.source, BoundShards) else numbers))
            row, count = row + number, count - number
        return stretches, Cursor(epoch, row)

    def widths(self, stretches: Sequence[tuple[int, NDArray[np.int64]]]) -> NDArray[np.int64] | None:
        """How many rows of the batch each row of these stretches makes; None if each makes one."""
        source, spread = self.source, self.exercise.spread
        if spread is not None:
            return np.concatenate([spread.widths(source, self._plans(epoch), numbers) for epoch, numbers in stretches])
        if isinstance(source, Spreading):
            return np.concatenate([source.widths(self._plans(epoch), numbers) for epoch, numbers in stretches])
        return None

    def examples(self, epoch: int, numbers: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64] | None]:
        """The examples of the rows with these numbers as a block, and, unless each row has one example, the row (0, 1, …) of
        each example."""
        plan = self._plans(epoch)
        if self._packed is not None:
            block, draw, row_of = self._packed.read(plan, numbers, self.exercise.wants)
            return self.exercise(block, draw), row_of
        block, draw = self.source.read(plan, numbers, self.exercise.wants), self.source.draw(plan, numbers)
        if isinstance(self.source, Spreading):  # the rows of one item draw the same random numbers
            draw = draw.take(block["owner"])
        examples = self.exercise(block, draw)
        return examples, examples.get("owner")

    def micro_batches(self, stretches: Sequence[tuple[int, NDArray[np.int64]]], sizes: Sequence[int]) -> list[MicroArrays]:
        """The rows of `stretches` cut into micro-batches of `sizes` rows, laid out as arrays."""
        stretches = _merged(stretches)
        blocks = [self.examples(epoch, numbers) for epoch, numbers in stretches]
        row_of = None
        if self.packing or self.spreads:
            firsts = np.cumsum([0] + [len(numbers) for _, numbers in stretches])
            row_of = np.concatenate([of + first for (_, of), first in zip(blocks, firsts, strict=False) if of is not None])
        return self.laid_out(Rows.concatenate([block for block, _ in blocks]), row_of, sizes)

    def laid_out(self, block: Rows, row_of: NDArray[np.int64] | None, sizes: Sequence[int]) -> list[MicroArrays]:
        """A block of examples cut into micro-batches of `sizes` rows. `row_of` is the row of each example if rows have several
        examples, or the record of each row if records have several rows; else None."""
        views = sorted({fields.split(name).view for name in block if fields.find(name).travels})
        micro_batches, start = [], 0
        for size in sizes:
            if row_of is None:
                chosen, of_row = slice(start, start + size), None
            else:
                low, high = np.searchsorted(row_of, [start, start + size])
                chosen, of_row = slice(int(low), int(high)), row_of[low:high] - start
            micro_batches.append(self._micro_arrays(block.take(chosen), views, of_row))
            start += size
        return micro_batches

    def _micro_arrays(self, block: Rows, views: Sequence[str], row_of: NDArray[np.int64] | None) -> MicroArrays:
        arrays: Arrays = {}
        tokens, owned = 0, "owner" in block
        examples = block.count
        if owned and row_of is not None:
            block, examples = block.having(owner=row_of), int(row_of[-1]) + 1 if len(row_of) else 0
        for view in views:
            rows = block.view(view)
            length = rows["length"].astype(np.int64) if "length" in rows else np.zeros(rows.count, np.int64)
            tokens += int(length.sum())
            if not any(fields.find(name).aligned for name in rows):  # features of a picture, cells of a matrix
                layout = one_per_row(length, 0)
            elif row_of is not None and not owned:
                layout = several_per_row(length, row_of, self.length)
            else:
                layout = one_per_row(length, self.length if self.fixed and view not in self.exercise.second else None)
            laid = collate(rows, layout, takes=self.takes, padding=self.padding)
            if self.targets_multiple > 1:
                laid = pad_targets(laid, self.targets_multiple)
            arrays.update({k if view == "main" else f"{view}.{k}": v for k, v in laid.items()})
        return MicroArrays(arrays, tokens, examples)


def _merged(stretches: Sequence[tuple[int, NDArray[np.int64]]]) -> list[tuple[int, NDArray[np.int64]]]:
    """Neighbouring stretches of the same epoch as one, so that each epoch's rows are made in one block."""
    return [
        (epoch, np.concatenate([rows for _, rows in group]))
        for epoch, group in groupby(stretches, key=lambda stretch: stretch[0])
    ]
