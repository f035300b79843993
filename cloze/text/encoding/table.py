"""A hash table from short byte strings to numbers that looks up and inserts whole arrays of keys at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UInt64 = NDArray[np.uint64]
Int64 = NDArray[np.int64]

LONGEST = 15  # bytes of a key: sixteen, less one for the length
BYTES_PER_SLOT = 28

_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xD6E8FEB86659FD93))


class Keys(NamedTuple):
    """Byte strings of at most 15 bytes, two words each; the top byte of the second is the length, so keys are unique."""

    low: UInt64
    high: UInt64


def keys_of(block: bytes, start: Int64, length: Int64) -> Keys:
    """The keys of pieces of a block; at least 16 readable bytes must follow the block. `length` is 1..15."""
    words = np.ndarray((len(block) - 8,), dtype="<u8", buffer=block, strides=(1,))
    low = words[start]
    low &= _MASKS[np.minimum(length, 8)]
    high = words[start + 8]
    high &= _MASKS[np.maximum(length - 8, 0)]
    high |= length.astype(np.uint64) << np.uint64(56)
    return Keys(low, high)


class KeyTable:
    """Open addressing with linear probing over `2**bits` slots; `values` belongs to the caller.

    All keys of an array advance together: those that find an empty slot claim it, the last writer wins, and the others probe
    again. The caller keeps the table from filling up: at most `capacity` old keys and `room` new ones per call.
    """

    def __init__(self, bits: int) -> None:
        slots = 1 << bits
        self._shift = np.uint64(64 - bits)
        self._last = slots - 1
        self._low = np.zeros(slots, dtype=np.uint64)
        self._high = np.zeros(slots, dtype=np.uint64)
        self._owner = np.zeros(slots, dtype=np.int32)
        self.values = np.zeros(slots, dtype=np.int64)
        self.capacity = slots * 2 // 5
        self.room = slots * 2 // 5
        self.used = 0

    def clear(self) -> None:
        """Forget every key."""
        self._high.fill(0)
        self.used = 0

    def slots_of(self, keys: Keys) -> tuple[Int64, Int64]:
        """The slot of every key (n,), and the index of one occurrence of each new key, in order."""
        low, high = keys
        mixed = (low * _ODD[0]) ^ (high * _ODD[1])
        mixed ^= mixed >> np.uint64(32)
        mixed *= _ODD[2]
        slot = (mixed >> self._shift).astype(np.int64)
        missed = self._low[slot] != low
        missed |= self._high[slot] != high
        rest = np.flatnonzero(missed)
        fresh: list[Int64] = []
        while rest.size:
            at = slot[rest]
            free = self._high[at] == 0
            if free.any():
                claimants, places = rest[free], at[free]
                self._owner[places] = claimants
                won = self._owner[places] == claimants
                claimants, places = claimants[won], places[won]
                self._low[places] = low[claimants]
                self._high[places] = high[claimants]
                fresh.append(claimants)
            other = (self._low[at] != low[rest]) | (self._high[at] != high[rest])
            rest = rest[other]
            slot[rest] = (at[other] + 1) & self._last
        new = np.sort(np.concatenate(fresh)) if fresh else np.zeros(0, dtype=np.int64)
        self.used += len(new)
        return slot, new
