"""Micro-batches for the training loop: the rows of a step, divided among ranks and micro-batches, made ahead in blocks.

`Data.next` is what the loop calls. It chooses the rows; a `Feed` per entry makes them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.batching.feed import Cursor, Feed, InLanes, MicroArrays
from cloze.batching.mixed import MixedFeed
from cloze.errors import RecipeError

EpochRows = tuple[int, NDArray[np.int64]]
StepArrays = tuple[Cursor, list[MicroArrays], Cursor]

#: Examples made in one block: larger blocks do not fit the cache, smaller ones pay numpy's fixed cost per call.
EXAMPLES_AT_ONCE = 256


class CursorLike(Protocol):
    """Any cursor: the loop's own or one that was read from a checkpoint."""

    @property
    def epoch(self) -> int: ...

    @property
    def row(self) -> int: ...


class MicroBatch(NamedTuple):
    """What one forward pass reads: a batch, the number of its first row in the step, and how many tokens and examples it has."""

    batch: Batch
    first_row: int
    tokens: int
    examples: int


class Data:
    """The examples of every entry of a run, as micro-batches of this rank.

    A step takes the next `batch` rows of its entry, beginning at the cursor. Every rank gets one contiguous piece of them,
    divided into micro-batches; neither the number of ranks nor the micro-batch changes which rows a step has or how they are
    made. `workers` processes make blocks ahead; 0 makes them in this process, which is faster except for huge batches.

    With `growth`, a step has that part of the batch which it gives for the share of the budget spent before the step, rounded to
    whole rows; ranks that cannot share them evenly differ by one row.
    """

    def __init__(
        self, feeds: Mapping[str, Feed | MixedFeed], *, batch: int, micro_batch: int | None = None, rank: int = 0, ranks: int = 1,
        workers: int = 0, held_out: Mapping[str, Feed | MixedFeed] | None = None, held_out_rows: int = 256,
        growth: Callable[[float], float] | None = None,
    ) -> None:
        self.feeds = dict(feeds)
        self.held_out_feeds = dict(held_out or {})
        self.held_out_rows = held_out_rows
        self._micro_batch = micro_batch
        self.rank, self.ranks = rank, ranks
        self.workers = workers
        self.growth = growth
        # By entry and cursor: the steps that are made already, and the blocks that workers are making.
        self._made: dict[tuple[str, Cursor], tuple[list[MicroArrays], Cursor]] = {}
        self._requested: dict[tuple[str, Cursor], Future[list[StepArrays]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._set_batch(batch)

    def _set_batch(self, batch: int) -> None:
        if batch % self.ranks:
            raise RecipeError(
                f"training.batch: {batch} rows cannot be divided evenly among {self.ranks} processes; "
                f"expected a multiple of {self.ranks}."
            )
        self.batch = batch
        self.micro_batch = min(self._micro_batch or batch, batch // self.ranks)
        self._rows = self.rows(0.0)
        if self._rows < self.ranks:
            raise RecipeError(
                f"training.batch_warmup: the first step has {self._rows} rows, fewer than the {self.ranks} processes.\n"
                "  Let it start at a larger part of the batch, or start fewer processes."
            )

    def rows(self, share: float) -> int:
        """The rows of a step that begins when a share of the budget is spent, over all ranks."""
        return self.batch if self.growth is None else max(round(self.batch * self.growth(share)), 1)

    def _grow(self, share: float) -> None:
        """Take the rows of a share; what was made ahead for other numbers of rows is made again."""
        if (rows := self.rows(share)) != self._rows:
            self._rows = rows
            self._made.clear()
            self._requested.clear()

    def set_micro_batch(self, micro_batch: int) -> None:
        """Divide the rows of a rank into micro-batches of at most this many."""
        self.close()
        self._micro_batch = micro_batch
        self._set_batch(self.batch)

    def close(self) -> None:
        """Stop the data workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._requested.clear()
        self._made.clear()

    def change(self, values: Mapping[str, Any]) -> bool:
        """Apply a phase's `length`, `batch` and odds; true if that changes the rows, so that the next epoch must start."""
        self.close()
        if "batch" in values:
            self._set_batch(int(values["batch"]))
        odds = {name[5:]: float(value) for name, value in values.items() if name.startswith("odds.")}
        changed = {name: feed.with_odds(odds) for name, feed in self.feeds.items() if isinstance(feed, MixedFeed)}
        odds_changed = any(feed is not self.feeds[name] for name, feed in changed.items())
        self.feeds.update(changed)
        length = int(values.get("length", 0))
        resized = [name for name, feed in self.feeds.items() if length and feed.length != length]
        for name in resized:
            self.feeds[name] = self.feeds[name].for_length(length)
            if name in self.held_out_feeds:
                self.held_out_feeds[name] = self.held_out_feeds[name].for_length(length)
        return bool(resized) or odds_changed

    def whole(self) -> Data:
        """The same data as one process has them: the rows of all ranks."""
        if self.ranks == 1:
            return self
        return Data(
            self.feeds, batch=self.batch, micro_batch=self._micro_batch, held_out=self.held_out_feeds,
            held_out_rows=self.held_out_rows, growth=self.growth,
        )

    def sample(self, entry: str, rows: int, length: int | None = None, *, at: float = 0.0) -> MicroBatch:
        """The rows of an entry's first epoch from a share of it on, as one micro-batch, at another length if given; no cursor
        moves."""
        feed = self.feeds[entry]
        feed = feed.for_length(length) if length is not None and length != feed.length else feed
        stretches, _ = feed.advance(Cursor(row=int(at * feed.row_count(0))), rows)
        (micro,) = feed.micro_batches(stretches, [rows])
        return MicroBatch(to_batch(micro), 0, micro.tokens, micro.examples)

    def first_rows(self, entry: str, rows: int, size: int) -> Iterator[MicroBatch]:
        """The first rows of an entry's first epoch in micro-batches of at most `size`; no cursor moves."""
        feed, cursor = self.feeds[entry], Cursor()
        for first in range(0, rows, size):
            stretches, cursor = feed.advance(cursor, min(size, rows - first))
            (micro,) = feed.micro_batches(stretches, [min(size, rows - first)])
            yield MicroBatch(to_batch(micro), first, micro.tokens, micro.examples)

    def rows_in_epoch(self, entry: str) -> int:
        """The rows of an entry's first epoch at the current length."""
        return self.feeds[entry].row_count(0)

    def micro_batch_ranges(self) -> list[tuple[int, int]]:
        """(first row, rows) of each of this rank's micro-batches in a step; every rank has the same number, and each has rows."""
        rows, ranks = self._rows, self.ranks
        start, stop = rows * self.rank // ranks, rows * (self.rank + 1) // ranks
        if rows % ranks == 0:
            return [(row, min(self.micro_batch, stop - row)) for row in range(start, stop, self.micro_batch)]
        number = -(-(rows // ranks + 1) // max(self.micro_batch, 2))  # of at least two rows, of which a rank may lack one
        edges = [start + (stop - start) * index // number for index in range(number + 1)]
        return [(first, after - first) for first, after in pairwise(edges)]

    def next(self, entry: str, cursor: CursorLike, share: float = 0.0) -> tuple[list[MicroBatch], Cursor]:
        """The micro-batches of the step that starts at `cursor` at a share of the budget, and the cursor of the next step."""
        begin = Cursor(cursor.epoch, cursor.row)
        self._grow(share)
        if (entry, begin) not in self._made:
            self._fill(entry, begin, share)
        micros, after = self._made.pop((entry, begin))
        batches = [
            MicroBatch(to_batch(micro), micro.first_row, micro.tokens, micro.examples) for micro in micros
        ]
        return batches, after

    def held_out(self, entry: str) -> Iterator[MicroBatch]:
        """This rank's share of the held-out rows of an entry: the same rows every time, the same number on every rank."""
        feed = self.held_out_feeds.get(entry)
        if feed is None:
            return
        feed = feed.when(1.0)
        if isinstance(feed, Feed) and isinstance(feed.source, InLanes):
            yield from self._held_out_lanes(feed)
            return
        rows_per_rank = min(feed.row_count(0), self.held_out_rows) // self.ranks
        first = self.rank * rows_per_rank
        for start in range(first, first + rows_per_rank, self.micro_batch):
            chosen = np.arange(start, min(start + self.micro_batch, first + rows_per_rank))
            (micro,) = feed.micro_batches([(0, chosen)], [len(chosen)])
            yield MicroBatch(to_batch(micro), start, micro.tokens, micro.examples)

    def _held_out_lanes(self, feed: Feed) -> Iterator[MicroBatch]:
        """Steps as in training, beginning with the first, so that each row continues the memory of its lane."""
        for start in range(0, min(feed.row_count(0), max(self.held_out_rows, self.batch)), self.batch):
            ranges = self.micro_batch_ranges()
            chosen = [(0, np.arange(start + first, start + first + size)) for first, size in ranges]
            for micro, (first, size) in zip(feed.micro_batches(chosen, [size for _, size in ranges]), ranges, strict=True):
                yield MicroBatch(to_batch(micro), first, micro.tokens, size)

    def _fill(self, entry: str, cursor: Cursor, share: float) -> None:
        """Make the step at `cursor` and a few that follow, at most an epoch, in one block. If rows follow a schedule, make only
        that step, in this process.
        """
        self._made = {key: made for key, made in self._made.items() if key[0] != entry}  # other entries take turns
        feed = self.feeds[entry]
        ranges = self.micro_batch_ranges()
        in_block = EXAMPLES_AT_ONCE // max(1, sum(size for _, size in ranges))
        ahead = max(1, min(in_block, -(-feed.row_count(cursor.epoch) // self._rows)))
        if feed.is_scheduled:
            steps = make_steps(feed.when(share), cursor, self._rows, ranges, 1)
        elif not self.workers:
            steps = make_steps(feed, cursor, self._rows, ranges, ahead)
        else:
            steps = self._from_workers(entry, cursor, ranges, ahead)
        for begin, micros, after in steps:
            self._made[entry, begin] = micros, after

    def _from_workers(
        self, entry: str, cursor: Cursor, ranges: list[tuple[int, int]], ahead: int
    ) -> list[StepArrays]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=get_context("spawn"), initializer=_begin_worker, initargs=(self.feeds,)
            )
        feed, begin = self.feeds[entry], cursor
        futures: dict[tuple[str, Cursor], Future[list[StepArrays]]] = {}
        for _ in range(self.workers + 1):
            key = entry, begin
            if key in self._requested:
                futures[key] = self._requested.pop(key)
            else:
                futures[key] = self._pool.submit(_make_in_worker, entry, begin, self._rows, ranges, ahead)
            _, begin = feed.advance(begin, self._rows * ahead)
        now = futures.pop((entry, cursor))
        # Blocks ordered for other entries stay ordered: the entries of a mixture alternate.
        self._requested.update(futures)
        return now.result()


def make_steps(
    feed: Feed | MixedFeed, cursor: Cursor, batch: int, ranges: list[tuple[int, int]], ahead: int
) -> list[StepArrays]:
    """`ahead` consecutive steps from `cursor`, made in one block: (cursor, this rank's micros, next cursor) of each."""
    steps, windows, firsts = [], [], []
    for _ in range(ahead):
        step_rows, after = feed.advance(cursor, batch)
        steps.append((cursor, after))
        windows += [_window(step_rows, first, size) for first, size in ranges]
        widths = feed.widths(step_rows)
        firsts += [first if widths is None else int(widths[:first].sum()) for first, _ in ranges]
        cursor = after
    # `windows`, `firsts` and `micros` list the micro-batches of all steps, (steps · ranges,).
    sizes = [size for _ in steps for _, size in ranges]
    micros = feed.micro_batches([stretch for window in windows for stretch in window], sizes)
    micros = [micro._replace(first_row=first) for micro, first in zip(micros, firsts, strict=True)]
    number = len(ranges)
    return [(begin, micros[i * number:(i + 1) * number], after) for i, (begin, after) in enumerate(steps)]


def _window(stretches: list[EpochRows], first: int, size: int) -> list[EpochRows]:
    """The rows `first` … `first + size` of a step, which may come from more than one epoch."""
    chosen, start = [], 0
    for epoch, rows in stretches:
        part = rows[max(first - start, 0):max(first + size - start, 0)]
        start += len(rows)
        if len(part):
            chosen.append((epoch, part))
    return chosen


def to_batch(micro: MicroArrays) -> Batch:
    """Tensors that share memory with the arrays; ids become 64-bit, as torch's embedding and loss require, and numbers of half
    precision single."""
    tensors = {}
    for name, value in micro.arrays.items():
        if value.dtype.kind in "iu" and value.dtype != np.int64:
            value = value.astype(np.int64)
        if value.dtype == np.float16:  # torch is twice as fast at it
            tensors[name] = torch.from_numpy(value if value.flags.writeable else value.copy()).float()
            continue
        if not value.flags.writeable or not value.flags.c_contiguous:
            value = value.copy()
        tensors[name] = torch.from_numpy(value)
    return Batch(tensors)


_feeds: dict[str, Feed | MixedFeed] = {}  # of a worker


def _begin_worker(feeds: dict[str, Feed | MixedFeed]) -> None:
    """Keep the feeds in this worker, which ignores Ctrl-C and ends with the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run handles Ctrl-C and then stops its workers
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    _feeds.update(feeds)


def _leave_with(parent: int) -> None:
    """End this worker when the run is gone: a killed run cannot tell its workers."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def _make_in_worker(
    entry: str, cursor: Cursor, batch: int, ranges: list[tuple[int, int]], ahead: int
) -> list[StepArrays]:
    """`make_steps` in a worker."""
    return make_steps(_feeds[entry], cursor, batch, ranges, ahead)
