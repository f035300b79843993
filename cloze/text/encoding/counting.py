"""Counting the chunks of a text of any size in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from cloze import kernels
from cloze.text.encoding import numbering
from cloze.text.encoding.cuts import LINE_END
from cloze.text.encodings import readable

_PLAIN_BYTES = 4 << 20  # below, importing the compiler costs more than it saves
_SLICE = 1 << 16  # chunks turned into Python objects at a time
_MARKS = rb"[^ \t\n\r!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]"
_SPACES = rb"[^ \t\n\r]+"


class ChunkCounter:
    """Counts chunks: the text between white space and, with `marks`, between ASCII punctuation.

    lower: lower-case ASCII letters first; most: the number of chunks to keep. Beyond it, chunks with the lowest counts are
    dropped, each time up to a higher count (`ReduceVocab` of word2vec.c). `forgotten` is the last such count, 0 if none was
    dropped. Compiled code scans large texts if the extra `fast` is installed.
    """

    def __init__(self, *, marks: bool, lower: bool, most: int = 4_000_000) -> None:
        self.most = most
        self.forgotten = 0
        self._lower = lower
        self._pattern = re.compile(_MARKS if marks else _SPACES)
        self._plain: Counter[bytes] = Counter()
        self._left = _PLAIN_BYTES
        self._numbers = numbering.ChunkNumbers(marks=marks, fold=lower, most=most)

    def add(self, lines: list[str]) -> None:
        """Count the chunks of some lines."""
        block = "\n".join(readable(lines)).encode()
        if self._lower:
            block = block.lower()
        if self._left > 0 or kernels.find("chunks") is None:
            self._plain.update(self._pattern.findall(block))
            self._left -= len(block)
        else:
            at = 0
            while at < len(block):
                scan = self._numbers.scan(block, at, LINE_END)
                for _, start, size in scan.long.tolist():
                    self._plain[block[start : start + size]] += 1
                at = scan.stop
                if self._numbers.full:
                    self._forget()
        if len(self._plain) > self.most:
            self._forget()

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Chunks with their counts; a chunk may occur twice, and its counts are then to be added."""
        yield from self.others()
        yield from self.scanned()

    def others(self) -> Iterator[tuple[bytes, int]]:
        """Chunks that were not scanned by compiled code: all of a small text, few of a large one."""
        yield from self._plain.items()

    def scanned(self) -> Iterator[tuple[bytes, int]]:
        """Chunks that compiled code scanned, none twice."""
        numbers = self._numbers
        for low in range(0, numbers.used, _SLICE):
            high = min(low + _SLICE, numbers.used)
            yield from zip(numbers.chunks(low, high), numbers.counts[low:high].tolist(), strict=True)

    def _forget(self) -> None:
        """Raise the minimum count until there is room again."""
        numbers = self._numbers
        while numbers.full or len(self._plain) > self.most:
            self.forgotten += 1
            if numbers.used:  # none without compiled code
                numbers.keep(numbers.counts[: numbers.used] > self.forgotten)
            self._plain = Counter(_above(self._plain.items(), self.forgotten))


def _above(items: Iterable[tuple[bytes, int]], floor: int) -> dict[bytes, int]:
    return {chunk: count for chunk, count in items if count > floor}
