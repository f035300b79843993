"""The fast exact encoder: cut lines into chunks, encode each distinct chunk once, gather the ids.

Text repeats itself: fewer than one in twenty chunks of an English file is new. Cutting and lookup run over whole arrays; only
new chunks reach Python or the tokenizer. Ids and word starts always equal those of `Tokenizer.encode`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.text.encoding.cuts import LINE_END, NEVER_IN_UTF8, cutter_for
from cloze.text.encoding.pieces import ChunkMatcher
from cloze.text.encoding.table import BYTES_PER_SLOT, LONGEST, KeyTable, keys_of
from cloze.text.encodings import readable
from cloze.text.tokenizer import Tokenizer

Int64 = NDArray[np.int64]

_BLOCK_CHARACTERS = 1 << 20
_GROUP = 1 << 17  # chunks looked up together: their arrays stay in the cache
_PADDING = b"\n" * 16
_COUNT_BITS = 20  # of a packed value; the rest is the place of the first id in the pool

# If new chunks make up more than this share of bytes, lookup costs more than it saves: lines go straight to the tokenizer.
_SHARE_TOO_NEW = 0.5
_DIRECT_BLOCKS = 16  # blocks encoded directly before the share is measured again


class EncodedLines(NamedTuple):
    """Encoded lines: ids (T,) int32 and word starts (T,) of all lines, and the offsets (n+1,) int64 of each line."""

    ids: NDArray[np.int32]
    word_start: NDArray[np.bool_]
    offsets: Int64


class ChunkEncoder:
    """Encodes lines exactly as the tokenizer does, several times faster; keeps a bounded dictionary of chunks.

    tokenizer: a `Tokenizer`, or the folder of a saved one, which suits worker processes; memory_mb: the size of the dictionary,
    which is cleared when full. Not thread-safe.
    """

    def __init__(self, tokenizer: Tokenizer | Path | str, memory_mb: int = 64) -> None:
        self._origin = tokenizer
        self.memory_mb = memory_mb
        self.tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else Tokenizer.load(Path(tokenizer))
        self._cutter = None if self.tokenizer.adds_pieces else cutter_for(json.loads(self.tokenizer.description))
        self._fold = self.tokenizer.kind in ("wordpiece", "words") and self.tokenizer.lower
        slots = max(1024, int(memory_mb * 2**20 * 0.6) // BYTES_PER_SLOT)
        self._table = KeyTable(slots.bit_length() - 1)
        self._bare = self.tokenizer.bare
        self._matcher = ChunkMatcher(self._bare)
        self._long: dict[bytes, int] = {}
        self._long_bytes = 0
        self._pool = np.zeros(4096, dtype=np.int32)
        self._pooled = 0
        self._direct_left = 0
        self.cleared = 0
        self.direct_blocks = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkEncoder, (self._origin, self.memory_mb)

    def encode_lines(self, lines: list[str]) -> EncodedLines:
        """The ids of each line, without special tokens; a line may be empty or contain line ends."""
        parts = [self._encode_block(block) for block in blocks_of_lines(self.tokenizer.apart(lines))]
        if not parts:
            return EncodedLines(np.zeros(0, np.int32), np.zeros(0, np.bool_), np.zeros(1, np.int64))
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        return EncodedLines(*self.tokenizer.joined(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.word_start for part in parts]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        ))

    def _encode_block(self, lines: list[str]) -> EncodedLines:
        if self._cutter is None or self._direct_left > 0:
            self._direct_left -= 1
            self.direct_blocks += 1
            return EncodedLines(*self._bare.encode_flat(lines))
        block, separator = joined(lines)
        folded = block.lower() if self._fold else block
        start, length = self._cutter(block, separator)
        padded = folded + _PADDING
        marked: list[NDArray[np.int32]] = []
        counts = np.zeros(len(start), dtype=np.int64)
        group = min(_GROUP, self._table.room)
        new_bytes = 0
        for at in range(0, len(start), group):
            here = slice(at, at + group)
            ids, counts[here], new = self._encode_group(padded, start[here], length[here])
            marked.append(ids)
            new_bytes += new
        if new_bytes > _SHARE_TOO_NEW * len(block) and len(block) >= _BLOCK_CHARACTERS // 4:
            self._direct_left = _DIRECT_BLOCKS
        flat = np.concatenate(marked) if marked else np.zeros(0, np.int32)
        ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == separator)
        chunk = np.searchsorted(start, ends)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        offsets = np.concatenate([np.zeros(1, np.int64), before[chunk], before[-1:]])
        return EncodedLines(flat >> 1, (flat & 1).astype(np.bool_), offsets)

    def _encode_group(self, block: bytes, start: Int64, length: Int64) -> tuple[NDArray[np.int32], Int64, int]:
        """Marked ids and counts of some chunks, and the number of bytes in new ones."""
        self._clear_if_full()
        short = np.flatnonzero(length <= LONGEST)
        every = len(short) == len(start)
        first, size = (start, length) if every else (start[short], length[short])
        slot, new = self._table.slots_of(keys_of(block, first, size))
        begin, end = first[new].tolist(), (first[new] + size[new]).tolist()
        chunks = [block[a:b] for a, b in zip(begin, end, strict=True)]
        fresh = len(chunks)
        value = self._table.values
        packed = np.zeros(len(start), dtype=np.int64)
        waiting: dict[bytes, int] = {}
        if not every:
            long = np.flatnonzero(length > LONGEST)
            where, words = self._look_up_long(block, start[long], length[long], waiting)
            chunks += list(waiting)
        if chunks:
            added = self._add(chunks)
            value[slot[new]] = added[:fresh]
            self._long.update(zip(waiting, added[fresh:].tolist(), strict=True))
            self._long_bytes += sum(map(len, waiting))
        if every:
            packed = value[slot]
        else:
            packed[short] = value[slot]
            packed[long] = [stored if stored >= 0 else self._long[word] for stored, word in zip(where, words, strict=True)]
        count = packed & ((1 << _COUNT_BITS) - 1)
        ends = np.cumsum(count)
        index = np.repeat((packed >> _COUNT_BITS) - (ends - count), count)
        index += np.arange(len(index))
        return self._pool[index], count, sum(map(len, chunks))

    def _look_up_long(
        self, block: bytes, start: Int64, length: Int64, waiting: dict[bytes, int]
    ) -> tuple[list[int], list[bytes]]:
        """Packed values of long chunks, -1 for new ones, which are added to `waiting`."""
        words = [block[a:b] for a, b in zip(start.tolist(), (start + length).tolist(), strict=True)]
        stored = [self._long.get(word, -1) for word in words]
        for value, word in zip(stored, words, strict=True):
            if value < 0:
                waiting[word] = 0
        return stored, words

    def _add(self, chunks: list[bytes]) -> Int64:
        """Encode new chunks into the pool. Returns their packed values."""
        marked, counts = self._matcher.match(chunks)
        needed = self._pooled + len(marked)
        if needed > len(self._pool):
            self._pool = np.concatenate([self._pool[: self._pooled], np.zeros(2 * needed - self._pooled, np.int32)])
        self._pool[self._pooled : needed] = marked
        places = self._pooled + np.cumsum(counts) - counts
        self._pooled = needed
        return (places << _COUNT_BITS) | counts

    def _clear_if_full(self) -> None:
        # A long chunk costs about 150 bytes besides its own; the pool may use what the table leaves.
        long_cost = self._long_bytes + 150 * len(self._long)
        spare = int(self.memory_mb * 2**20 * 0.2)
        if self._table.used > self._table.capacity or long_cost > spare or 4 * self._pooled > spare:
            self._table.clear()
            self._long.clear()
            self._long_bytes = self._pooled = 0
            self.cleared += 1


def blocks_of_lines(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines in groups of about a million characters."""
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line) + 1
        if size >= _BLOCK_CHARACTERS:
            yield held
            held, size = [], 0
    if held:
        yield held


def joined(lines: list[str]) -> tuple[bytes, int]:
    """The lines as UTF-8, joined by a byte that occurs in none of them."""
    text = "\n".join(lines)
    if text.count("\n") == len(lines) - 1:
        try:
            return text.encode(), LINE_END
        except UnicodeEncodeError:
            lines = list(readable(lines))
    return bytes([NEVER_IN_UTF8]).join(line.encode() for line in readable(lines)), NEVER_IN_UTF8
