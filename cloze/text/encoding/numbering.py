"""Numbers for the distinct chunks of a text, compiled: one scan over the bytes with a hash table (extra `fast`).

The cuts are those of `cuts.BertCutter` without ideographs and of `cuts.cut_white_space`.
"""

from __future__ import annotations

import string
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import kernels
from cloze.text.encoding.table import LONGEST

Int64 = NDArray[np.int64]

_WHITE, _WORD, _MARK, _END = 0, 1, 2, 3
_SMALLEST = 1 << 12


class Scanned(NamedTuple):
    """Part of a block: the number of each chunk (n,), -1 for those too long for the table; these, as `long` (k, 3): index, first
    byte, bytes; the number of chunks before the end of each line (m,); and where the part ends in the block."""

    numbers: NDArray[np.int32]
    long: Int64
    lines: Int64
    stop: int


class ChunkNumbers:
    """Numbers distinct chunks of at most 15 bytes in order of appearance, and counts them.

    marks: each ASCII punctuation mark is a chunk of its own; fold: ASCII letters are lower-cased; most: the number of chunks to
    keep, about 28 bytes each. Not thread-safe.
    """

    def __init__(self, *, marks: bool, fold: bool, most: int) -> None:
        self.most = most
        self._classes, self._fold = _classes(marks), _folding(fold)
        self.clear()

    def clear(self) -> None:
        """Forget every chunk."""
        room = min(self.most, _SMALLEST)
        self.used = 0
        self._keys = np.zeros((room, 2), dtype=np.uint64)
        self.counts = np.zeros(room, dtype=np.int64)
        self._slots = np.full(2 * _SMALLEST, -1, dtype=np.int32)

    @property
    def full(self) -> bool:
        """Whether there is no room for new chunks: call `keep` or `clear`."""
        return self.used >= self.most

    def scan(self, block: bytes, start: int, separator: int) -> Scanned:
        """Number the chunks of a block from `start` on while there is room for new ones; `separator` ends a line."""
        scan = _kernel().scan
        classes = self._classes.copy()
        classes[separator] = _END
        raw = np.frombuffer(block, dtype=np.uint8)
        numbers = np.empty(len(raw) - start, dtype=np.int32)
        long = np.empty(((len(raw) - start) // (LONGEST + 1) + 1, 3), dtype=np.int64)
        lines = np.empty(block.count(separator, start), dtype=np.int64)
        at, done, longs, ended = start, 0, 0, 0
        while True:
            at, done, longs, ended, self.used = scan(
                raw, at, classes, self._fold, self._keys, self.counts, self._slots, self.used,
                numbers, done, long, longs, lines, ended,
            )
            if at >= len(raw) or self.full:
                return Scanned(numbers[:done], long[:longs], lines[:ended], at)
            self._grow()

    def reserve(self) -> int:
        """A number for a chunk that is too long for the table; the caller remembers which."""
        if self.used == len(self._keys):
            self._grow()
        self.used += 1
        return self.used - 1

    def chunks(self, first: int = 0, end: int | None = None) -> list[bytes]:
        """The chunks from number `first` on; empty for reserved numbers."""
        keys = self._keys[first : self.used if end is None else end]
        raw = np.ascontiguousarray(keys).astype("<u8", copy=False).tobytes()
        sizes = (keys[:, 1] >> np.uint64(56)).tolist()
        return [raw[at : at + size] for at, size in zip(range(0, len(raw), 16), sizes, strict=True)]

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Forget all chunks except the chosen ones (used,), which are renumbered in order."""
        keys, counts = self._keys[: self.used][chosen], self.counts[: self.used][chosen]
        self.used = len(keys)
        self._keys[: self.used], self.counts[: self.used] = keys, counts
        self.counts[self.used :] = 0
        self._slots.fill(-1)
        _kernel().place(self._keys, self._slots, self.used)

    def _grow(self) -> None:
        room = max(self.used + 1, min(2 * len(self._keys), self.most))
        if room > len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros((room - len(self._keys), 2), dtype=np.uint64)])
            self.counts = np.concatenate([self.counts, np.zeros(room - len(self.counts), dtype=np.int64)])
        slots = len(self._slots)
        while slots < 2 * room:
            slots *= 2
        self._slots = np.full(slots, -1, dtype=np.int32)
        _kernel().place(self._keys, self._slots, self.used)


def expand(numbers: NDArray[np.int32], starts: Int64, count: Int64, pool: NDArray[np.int32]) -> tuple[NDArray[np.int32], Int64]:
    """The ids of every number, concatenated, and the number of ids before each chunk (n + 1,)."""
    before = np.empty(len(numbers) + 1, dtype=np.int64)
    kernel = _kernel()
    ids = np.empty(kernel.measure(numbers, count, before), dtype=np.int32)
    kernel.gather(numbers, starts, before, pool, ids)
    return ids, before


def _classes(marks: bool) -> NDArray[np.uint8]:
    table = np.full(256, _WORD, dtype=np.uint8)
    table[list(b" \t\n\r\xff")] = _WHITE
    if marks:
        table[list(string.punctuation.encode())] = _MARK
    return table


def _folding(fold: bool) -> NDArray[np.uint8]:
    every = bytes(range(256))
    return np.frombuffer(every.lower() if fold else every, dtype=np.uint8)


def _kernel() -> Any:
    return kernels.require("chunks", "scanning words with compiled code")
