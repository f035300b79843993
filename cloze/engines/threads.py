"""What lock-free engines share: threads take jobs of several steps, and change the same tables, until something is due."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.batching import Cursor, Feed
from cloze.engines.tables import AlignedTable, TurnedTable
from cloze.errors import CorpusError
from cloze.objectives import Loss
from cloze.training.engine import ProgressUnit, Steps

Arrays = tuple[NDArray[Any], ...]
NO_KEYS = np.zeros(0, np.uint64)

_WORDS_PER_JOB = 20_000  # about 15 ms: long compared with handing out a job, short compared with the decay of the rate


class Threads(ABC):
    """A trainer (`cloze.training.engine`) whose threads take the next steps of a feed, some 20,000 words at a time.

    A subclass sets the tables `inputs` and `outputs`, gathers rows as arrays of one length, of which the first two are where each
    row begins among the ids and how many ids it has, and trains on a part of them.
    """

    unit: ClassVar[ProgressUnit] = ProgressUnit()

    inputs: AlignedTable
    outputs: AlignedTable | TurnedTable

    def __init__(self, steps: Steps, entry: str, feed: Feed, *, threads: int) -> None:
        data: Any = steps.run.data
        self.steps, self.entry, self.feed, self.threads = steps, entry, feed, threads
        self.batch: int = data.batch
        micro = data.next(entry, Cursor())[0][0]  # the first rows stand for all
        self.flops_per_word = steps.run.step.flops(entry, micro.batch) / max(micro.tokens, 1)
        source: Any = feed.source
        self.tokens = np.asarray(source.store.tokens)
        check_ids(self.tokens, source.store.vocab_size, source.store.path)
        tokens_per_row = max(source.tokens / max(feed.row_count(0), 1), 1.0)
        self.steps_per_job = max(int(_WORDS_PER_JOB / (tokens_per_row * self.batch)), 1)
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.lock = threading.Lock()
        self.over = False

    def compile(self, *more: NDArray[Any]) -> None:
        """Run the kernel on no rows, so that it is compiled before any time is measured; `more` are their further arrays."""
        none = np.zeros(0, np.int64)
        self.take()
        self.train_rows((none, none, *more), none.astype(np.float32), 0, np.zeros(4))

    @abstractmethod
    def gather(self, runs: Any) -> Arrays:
        """The rows in `runs`, pairs of an epoch and row numbers, as arrays."""

    @abstractmethod
    def train_rows(self, rows: Arrays, rates: NDArray[np.float32], number: int, totals: NDArray[np.float64]) -> None:
        """Train on rows with a learning rate each, in the buffers of thread `number`.

        Adds to `totals` (4,): words, anything, the loss, and over how many targets it was summed."""

    def take(self) -> None:
        """Let the kernel have the parameters."""
        self.inputs.take()
        self.outputs.take()

    def sync_parameters(self) -> None:
        """Give the parameters back their own shape."""
        self.inputs.give_back()
        self.outputs.give_back()

    def train(self) -> None:
        """Steps by all threads, until something is due, a signal comes or the budget is spent."""
        totals = np.zeros((self.threads, 4))
        self.take()
        self.over = False
        if self.pool is None:
            self._work(0, totals[0])
        else:
            running = [self.pool.submit(self._work, number, totals[number]) for number in range(self.threads)]
            for future in running:
                future.result()  # raises the exception of a thread; the others have stopped at their next step
        words, _, loss, targets = totals.sum(axis=0).tolist()
        total = torch.tensor(loss, dtype=torch.float64)
        self.steps.report(Loss(total, {}), targets=targets, tokens=words, flops=words * self.flops_per_word)

    def _work(self, number: int, totals: NDArray[np.float64]) -> None:
        """Job after job until there is none left."""
        try:
            while (job := self._next()) is not None:
                self.train_rows(*job, number, totals)
        except BaseException:
            self.over = True
            raise

    def _next(self) -> tuple[Arrays, NDArray[np.float32]] | None:
        """The rows of the next steps and their rates, counted as done. None if the threads should stop."""
        with self.lock:
            if self.over:
                return None
            batch, cursor = self.batch, self.steps.cursor
            many = min(self.steps_per_job, max((self.feed.row_count(cursor.epoch) - cursor.row) // batch, 1))
            runs, after = self.feed.advance(cursor, many * batch)
            rows = self.gather(runs)
            lengths = rows[1]
            rates: list[float] = []
            while len(rates) < many and not self.over and self.steps.ready():
                rates.append(self.steps.rate())
                done = len(rates)
                here = after if done == many else Cursor(cursor.epoch, cursor.row + done * batch)
                words = float(lengths[(done - 1) * batch : done * batch].sum())
                if self.steps.count(here, tokens=words, examples=batch, flops=words * self.flops_per_word):
                    self.over = True
            if not rates:
                return None
            count = len(rates) * batch
            return tuple(array[:count] for array in rows), np.repeat(np.array(rates, np.float32), batch)


def check_ids(tokens: NDArray[Any], vocab_size: int, path: Any) -> None:
    """Refuse ids outside the vocabulary: compiled code uses them as addresses without bounds checks."""
    for low in range(0, len(tokens), 1 << 24):
        largest = int(tokens[low : low + (1 << 24)].max())
        if largest >= vocab_size:
            raise CorpusError(
                f"{path / 'tokens.bin'}: holds the id {largest:,}, but the vocabulary has {vocab_size:,} words. The file is "
                "damaged.\n  Build the store again."
            )
