"""Counts pairs of words in bounded memory: with hash tables in compiled code, or by sorting in numpy; spills sorted runs to disk.

A pair's key is its first id times the size of the vocabulary, plus the second. A symmetric count puts the larger id first, so
that one entry stands for two cells. Threads split the pairs by their first id and need no locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import kernels
from cloze.corpus.counting.spill import Keys, Runs, Sums, added
from cloze.corpus.counting.word_chunks import WordChunk
from cloze.jobs import cores

_ENTRY = 16          # bytes of a key and a sum
_FIRST_SLOTS = 1 << 18
_FULL = 0.7


def counted(
    chunks: Iterable[WordChunk], weights: NDArray[np.float64], *, vocab_size: int, symmetric: bool, memory: int, folder: Path,
    threads: int = 1, compiled: bool = True,
) -> Runs:
    """The sums of `weights[d - 1]` over all pairs at distance d, by key; spilled into `folder` if memory is too small.

    `memory`: bytes for tables, sorting and runs in memory together.
    """
    if compiled:
        return _by_tables(chunks, weights, vocab_size, symmetric, memory, folder, threads)
    return _by_sorting(chunks, weights, vocab_size, symmetric, memory, folder)


def threads_here() -> int:
    """How many threads may count: OMP_NUM_THREADS, else the cores of this process."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads) > 0:
        return int(threads)
    return cores()


# ---- compiled --------------------------------------------------------------------------------------------------------


class _Table:
    """A growing hash table of one thread."""

    def __init__(self, longest: int) -> None:
        self.longest = longest  # slots that the memory allows
        self._make(min(_FIRST_SLOTS, longest))

    def _make(self, slots: int) -> None:
        self.keys: Keys = np.zeros(slots, np.uint64)
        self.sums: Sums = np.zeros(slots, np.float64)
        self.used = np.zeros(1, np.int64)

    def grow(self) -> bool:
        """Grow to four times the slots, or as many as memory allows; false if it allows no more."""
        if len(self.keys) >= self.longest:
            return False
        keys, sums = self.keys, self.sums
        self._make(min(4 * len(keys), self.longest))
        kernels.find("pairs").rehash(keys, sums, self.keys, self.sums, self.used)
        return True

    def taken(self) -> tuple[Keys, Sums]:
        """Keys and sums of all entries, keys ascending; the table is empty then."""
        entries: tuple[Keys, Sums] = kernels.find("pairs").taken(self.keys, self.sums, int(self.used[0]))
        self._make(len(self.keys))
        return entries


def _by_tables(
    chunks: Iterable[WordChunk], weights: NDArray[np.float64], vocab_size: int, symmetric: bool, memory: int, folder: Path,
    threads: int,
) -> Runs:
    count = kernels.find("pairs").count
    # Sorting needs two more copies of the entries, which fill 0.7 of a table.
    longest = max(int(memory / (_ENTRY * (threads + 2 * _FULL))), 1 << 12, 16 * len(weights))
    tables = [_Table(longest) for _ in range(threads)]
    runs = Runs(folder)

    def work(number: int, words: WordChunk) -> None:
        table, at = tables[number], words.new
        while True:
            at = count(
                words.ids, words.left, at, weights, vocab_size, symmetric, number, threads, table.keys, table.sums, table.used,
                int(_FULL * len(table.keys)) - 2 * len(weights),
            )
            if at == len(words.ids):
                return
            waiting.append((number, at))
            return

    waiting: list[tuple[int, int]] = []
    with ThreadPoolExecutor(threads) as pool:
        for words in chunks:
            todo = [(number, words) for number in range(threads)]
            while todo:
                list(pool.map(lambda job: work(*job), todo))
                todo = []
                for number, at in waiting:  # one after another: growing and spilling take memory
                    if not tables[number].grow():
                        runs.spill(*tables[number].taken())
                    todo.append((number, WordChunk(words.ids, words.left, at)))
                waiting.clear()
    while tables:  # one after another, so that sorted entries take the place of the tables
        runs.hold(*tables.pop().taken())
    return runs


# ---- plain -----------------------------------------------------------------------------------------------------------


def _by_sorting(
    chunks: Iterable[WordChunk], weights: NDArray[np.float64], vocab_size: int, symmetric: bool, memory: int, folder: Path
) -> Runs:
    """The same without a compiler: makes all pairs of a piece of text, sorts them and adds them up."""
    # Summing needs four copies of the entries: separate, joined, sorted, and summed.
    piece = max(int(memory / (16 * _ENTRY * len(weights))), 1 << 10)
    most = memory // (6 * _ENTRY)  # entries kept before they are written
    runs, blocks = Runs(folder), [(np.zeros(0, np.uint64), np.zeros(0))]
    for words in chunks:
        for low in range(words.new, len(words.ids), piece):
            blocks.append(_pairs(words, low, min(low + piece, len(words.ids)), weights, vocab_size, symmetric))
            if sum(len(keys) for keys, _ in blocks) > most:
                blocks = [added(np.concatenate([k for k, _ in blocks]), np.concatenate([s for _, s in blocks]))]
                if len(blocks[0][0]) > most // 2:
                    runs.spill(*blocks.pop())
    if blocks:
        runs.hold(*added(np.concatenate([k for k, _ in blocks]), np.concatenate([s for _, s in blocks])))
    return runs


def _pairs(
    words: WordChunk, low: int, high: int, weights: NDArray[np.float64], vocab_size: int, symmetric: bool
) -> tuple[Keys, Sums]:
    keys: list[Any] = []
    sums: list[Any] = []
    size = np.uint64(vocab_size)
    for distance in range(1, len(weights) + 1):
        positions = low + np.flatnonzero(words.left[low:high] >= distance)
        word, other = words.ids[positions].astype(np.uint64), words.ids[positions - distance].astype(np.uint64)
        first, second = (np.maximum(word, other), np.minimum(word, other)) if symmetric else (word, other)
        keys.append(first * size + second)
        sums.append(np.full(len(positions), weights[distance - 1]))
    return added(np.concatenate(keys), np.concatenate(sums))
