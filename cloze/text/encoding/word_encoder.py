"""The compiled encoder of whole words: the ids of `Tokenizer.encode`, several times faster than `ChunkEncoder`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import kernels
from cloze.text.encoding import numbering
from cloze.text.encoding.chunks import ChunkEncoder, EncodedLines, blocks_of_lines, joined
from cloze.text.encoding.cuts import BertCutter, cut_white_space, cutter_for
from cloze.text.encoding.pieces import ChunkMatcher
from cloze.text.tokenizer import Tokenizer

Int64 = NDArray[np.int64]

_BYTES_PER_CHUNK = 72  # of a short chunk: keys, counts, slots, place, count and ids, with the room that doubling leaves
_BYTES_PER_LONG = 200


def encoder_for(tokenizer: Tokenizer, *, memory_mb: int, compiled: bool) -> ChunkEncoder | WordEncoder:
    """The fastest encoder for a tokenizer; `compiled` if the text is large enough to justify loading the compiler."""
    if compiled and WordEncoder.fits(tokenizer) and kernels.find("chunks") is not None:
        return WordEncoder(tokenizer, memory_mb)
    return ChunkEncoder(tokenizer, memory_mb=memory_mb)


class WordEncoder:
    """Encodes lines exactly as the tokenizer does: one compiled scan finds the words and looks them up in a hash table; words
    that are new, and those beyond ASCII when they first come, go through the tokenizer.

    memory_mb: the size of the dictionary, which is cleared when full. Not thread-safe. Needs the extra `fast`.
    """

    def __init__(self, tokenizer: Tokenizer, memory_mb: int = 64) -> None:
        self.tokenizer = tokenizer
        self.memory_mb = memory_mb
        marks = isinstance(cutter_for(json.loads(tokenizer.description)), BertCutter)
        most = max(1024, memory_mb * 2**20 // _BYTES_PER_CHUNK)
        self._numbers = numbering.ChunkNumbers(marks=marks, fold=tokenizer.lower, most=most)
        self._matcher = ChunkMatcher(tokenizer.bare)
        self._most_long = max(256, memory_mb * 2**20 // 8 // _BYTES_PER_LONG)
        self._long: dict[bytes, int] = {}
        self._place: Int64 = np.zeros(0, np.int64)   # of the first id in the pool, by number
        self._count: Int64 = np.zeros(0, np.int64)
        self._pool: NDArray[np.int32] = np.zeros(0, np.int32)
        self._known = self._pooled = self.cleared = 0

    @staticmethod
    def fits(tokenizer: Tokenizer) -> bool:
        """Whether the compiled scan cuts like this tokenizer."""
        cutter = cutter_for(json.loads(tokenizer.description))
        spaced = isinstance(cutter, BertCutter) and not cutter.ideographs
        return tokenizer.kind == "words" and not tokenizer.adds_pieces and (spaced or cutter is cut_white_space)

    def __reduce__(self) -> tuple[Any, ...]:
        return WordEncoder, (self.tokenizer, self.memory_mb)

    def encode_lines(self, lines: list[str]) -> EncodedLines:
        """The ids of each line, without special tokens; a line may be empty or contain line ends."""
        ids: list[NDArray[np.int32]] = []
        offsets: list[Int64] = [np.zeros(1, np.int64)]
        total = 0
        for held in blocks_of_lines(self.tokenizer.apart(lines)):
            block, separator = joined(held)
            at = 0
            while True:
                scan = self._numbers.scan(block, at, separator)
                self._learn(block, scan)
                here, before = numbering.expand(scan.numbers, self._place, self._count, self._pool)
                ids.append(here)
                offsets.append(total + before[scan.lines])
                total += len(here)
                at = scan.stop
                if self._numbers.full or len(self._long) > self._most_long:
                    self._clear()
                if at >= len(block):
                    break
            offsets.append(np.array([total], np.int64))
        flat = np.concatenate(ids) if ids else np.zeros(0, np.int32)
        return EncodedLines(*self.tokenizer.joined(flat, np.ones(total, dtype=np.bool_), np.concatenate(offsets)))

    def _learn(self, block: bytes, scan: numbering.Scanned) -> None:
        """Assign ids to the new chunks of a scan, and numbers to the long ones."""
        chunks = self._numbers.chunks(self._known)
        for index, start, size in scan.long.tolist():
            word = block[start : start + size]
            number = self._long.get(word)
            if number is None:
                self._long[word] = number = self._numbers.reserve()
                chunks.append(word)
            scan.numbers[index] = number
        if not chunks:
            return
        if self.tokenizer.lower:
            chunks = [chunk.lower() for chunk in chunks]
        marked, counts = self._matcher.match(chunks)
        places = self._pooled + np.cumsum(counts) - counts
        self._place = _put(self._place, places, self._known)
        self._count = _put(self._count, counts, self._known)
        self._pool = _put(self._pool, marked >> 1, self._pooled)
        self._known += len(chunks)
        self._pooled += len(marked)

    def _clear(self) -> None:
        self._numbers.clear()
        self._long.clear()
        self._known = self._pooled = 0
        self.cleared += 1


def _put(array: NDArray[Any], values: NDArray[Any], at: int) -> NDArray[Any]:
    """The array with `values` written from `at` on, extended if necessary."""
    if at + len(values) > len(array):
        array = np.concatenate([array[:at], np.zeros(at + 2 * len(values), dtype=array.dtype)])
    array[at : at + len(values)] = values
    return array
