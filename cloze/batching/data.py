"""Micro-batches for the loop: the rows of a step dealt to ranks and micro-batches, made ahead in larger blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.batching.feed import Cursor, Feed, Part

Run = tuple[int, NDArray[np.int64]]

#: Examples made in one block: larger blocks leave the cache, smaller ones pay numpy's fixed cost per call.
BLOCK = 256


class MicroBatch(NamedTuple):
    """What one forward pass reads: a batch, the number of its first row within the step, and what it holds."""

    batch: Batch
    first_row: int
    tokens: int
    examples: int


class Data:
    """The examples of every entry of a run, as micro-batches of this rank.

    A step takes `batch` rows of its entry from the cursor on. They are dealt in one piece per rank, in order, and each
    piece in micro-batches; neither the number of ranks nor the micro-batch changes which rows a step holds or how they are
    made. `workers` processes make blocks ahead; 0 makes them here, which is faster for anything but huge batches.
    """

    def __init__(
        self, feeds: Mapping[str, Feed], *, batch: int, micro_batch: int | None = None, rank: int = 0, ranks: int = 1,
        workers: int = 0, held_out: Mapping[str, Feed] | None = None, held_out_rows: int = 512,
    ) -> None:
        self.feeds = dict(feeds)
        self.batch = batch
        self.micro_batch = micro_batch or -(-batch // ranks)
        self.rank, self.ranks = rank, ranks
        self.held_out_feeds = dict(held_out or {})
        self.held_out_rows = held_out_rows
        self.workers = workers
        self._made: OrderedDict[tuple[str, Cursor], tuple[list[Part], Cursor]] = OrderedDict()
        self._ordered: dict[tuple[str, Cursor], Future[list[tuple[Cursor, list[Part], Cursor]]]] = {}
        self._pool: ProcessPoolExecutor | None = None

    def close(self) -> None:
        """Stop the data workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def spans(self) -> list[tuple[int, int]]:
        """(first row, rows) of each of this rank's micro-batches within a step."""
        share = -(-self.batch // self.ranks)
        start, stop = min(self.rank * share, self.batch), min((self.rank + 1) * share, self.batch)
        return [(row, min(self.micro_batch, stop - row)) for row in range(start, stop, self.micro_batch)]

    def next(self, entry: str, cursor: Cursor) -> tuple[list[MicroBatch], Cursor]:
        """The micro-batches of the step that starts at `cursor`, and the cursor of the next one."""
        cursor = Cursor(*cursor)
        if (entry, cursor) not in self._made:
            self._fill(entry, cursor)
        parts, after = self._made.pop((entry, cursor))
        batches = [
            MicroBatch(to_batch(part), first, part.tokens, part.examples)
            for part, (first, _) in zip(parts, self.spans(), strict=True)
        ]
        return batches, after

    def held_out(self, entry: str) -> Iterator[MicroBatch]:
        """The held-out rows of an entry, the same ones every time, this rank's share of them."""
        feed = self.held_out_feeds.get(entry)
        if feed is None:
            return
        rows = np.arange(min(feed.rows(0), self.held_out_rows))
        for start in range(self.rank * self.micro_batch, len(rows), self.micro_batch * self.ranks):
            chosen = rows[start:start + self.micro_batch]
            (part,) = feed.parts([(0, chosen)], [len(chosen)])
            yield MicroBatch(to_batch(part), start, part.tokens, part.examples)

    def _fill(self, entry: str, cursor: Cursor) -> None:
        """Make the step at `cursor` and a few that follow, in one block."""
        self._made.clear()
        feed = self.feeds[entry]
        spans = self.spans()
        ahead = max(1, BLOCK // max(1, sum(size for _, size in spans)))
        if not self.workers:
            made = make_steps(feed, cursor, self.batch, spans, ahead)
        else:
            made = self._from_workers(entry, cursor, spans, ahead)
        for begin, parts, after in made:
            self._made[entry, begin] = parts, after

    def _from_workers(
        self, entry: str, cursor: Cursor, spans: list[tuple[int, int]], ahead: int
    ) -> list[tuple[Cursor, list[Part], Cursor]]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=get_context("spawn"), initializer=_receive, initargs=(self.feeds,)
            )
        feed, begin, wanted = self.feeds[entry], cursor, {}
        for _ in range(self.workers + 1):
            key = entry, begin
            wanted[key] = self._ordered.pop(key, None) or self._pool.submit(
                _make_there, entry, begin, self.batch, spans, ahead
            )
            _, begin = feed.advance(begin, self.batch * ahead)
        for stale in self._ordered.values():
            stale.cancel()
        now = wanted.pop((entry, cursor))
        self._ordered = wanted
        return now.result()


def make_steps(
    feed: Feed, cursor: Cursor, batch: int, spans: list[tuple[int, int]], ahead: int
) -> list[tuple[Cursor, list[Part], Cursor]]:
    """`ahead` consecutive steps from `cursor`, made in one block: (cursor, this rank's parts, cursor behind) of each."""
    steps, runs = [], []
    for _ in range(ahead):
        taken, after = feed.advance(cursor, batch)
        steps.append((cursor, after))
        runs += [_window(taken, first, size) for first, size in spans]
        cursor = after
    parts = feed.parts([run for window in runs for run in window], [size for _ in steps for _, size in spans])
    number = len(spans)
    return [(begin, parts[i * number:(i + 1) * number], after) for i, (begin, after) in enumerate(steps)]


def _window(runs: list[Run], first: int, size: int) -> list[Run]:
    """The rows `first` … `first + size` of a step, which may come from more than one epoch."""
    chosen, start = [], 0
    for epoch, rows in runs:
        part = rows[max(first - start, 0):max(first + size - start, 0)]
        start += len(rows)
        if len(part):
            chosen.append((epoch, part))
    return chosen


def to_batch(part: Part) -> Batch:
    """Tensors over the same memory; ids become 64-bit, as torch's embedding and loss want them."""
    tensors = {}
    for name, value in part.arrays.items():
        if value.dtype.kind in "iu" and value.dtype != np.int64:
            value = value.astype(np.int64)
        if not value.flags.writeable or not value.flags.c_contiguous:
            value = value.copy()
        tensors[name] = torch.from_numpy(value)
    return Batch(tensors)


_feeds: dict[str, Feed] = {}


def _receive(feeds: dict[str, Feed]) -> None:
    _feeds.update(feeds)


def _make_there(
    entry: str, cursor: Cursor, batch: int, spans: list[tuple[int, int]], ahead: int
) -> list[tuple[Cursor, list[Part], Cursor]]:
    return make_steps(_feeds[entry], cursor, batch, spans, ahead)
