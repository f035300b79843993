"""Random numbers by address: a pure function of (seed, entry, epoch, item), a name and a position.

No state is kept, so the same row comes out bit for bit whatever block, worker or rank makes it, and nothing about
randomness has to be saved. Row addresses are folded into one 64-bit key per row (splitmix64 finaliser); the numbers of a
row come from a 32-bit mixer keyed by both halves of that key.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]

_GOLDEN64 = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1
# Arrays without dimensions, which numpy takes up in half the time of its scalars: what a small block pays most for.
_GOLDEN32, _M1, _M2 = np.array(0x9E3779B9, np.uint32), np.array(0x7FEB352D, np.uint32), np.array(0x846CA68B, np.uint32)
_S27, _S30, _S31 = np.array(27, np.uint64), np.array(30, np.uint64), np.array(31, np.uint64)
_M3, _M4 = np.array(0xBF58476D1CE4E5B9, np.uint64), np.array(0x94D049BB133111EB, np.uint64)
_S15, _S16 = np.array(15, np.uint32), np.array(16, np.uint32)


@lru_cache(maxsize=4096)
def name_key(name: str) -> int:
    """A 64-bit number standing for a name; the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def mix64(x: int) -> int:
    """The splitmix64 finaliser on one Python integer."""
    x &= _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def fold(*parts: int | str) -> int:
    """One 64-bit key from a sequence of integers and names; the order matters."""
    key = 0x243F6A8885A308D3
    for part in parts:
        value = name_key(part) if isinstance(part, str) else int(part)
        key = mix64((key * _GOLDEN64) ^ mix64(value + _GOLDEN64))
    return key


@lru_cache(maxsize=4096)
def salts(view: str, name: str) -> tuple[UInt32, UInt32]:
    """What the numbers of a name are mixed with, the two halves of a key."""
    key = fold(view, name)
    return np.array(key & 0xFFFFFFFF, np.uint32), np.array(key >> 32, np.uint32)


def mix_keys(keys: UInt64, salt: int) -> UInt64:
    """Fold a 64-bit `salt` into an array of keys (any shape); vectorised splitmix64 finaliser."""
    x = keys ^ np.array(salt, np.uint64)
    x ^= x >> _S30
    x *= _M3
    x ^= x >> _S27
    x *= _M4
    x ^= x >> _S31
    return x


def row_keys(*address: int | str, items: NDArray[np.int64]) -> UInt64:
    """One key per item (shape of `items`) under an address such as (seed, entry, epoch)."""
    return mix_keys(items.astype(np.uint64) * np.uint64(_GOLDEN64), fold(*address))


def permutation(count: int, *address: int | str) -> NDArray[np.int64]:
    """A random order of `count` items that is a pure function of the address."""
    return np.random.Generator(np.random.Philox(key=fold(*address))).permutation(count)


class Draw:
    """The random numbers of a block of rows.

    `keys` holds one 64-bit key per row. Every method takes a name, so that two edits never share numbers, and an optional
    count `n`; the result has shape (B,) or (B, n). Number j of a row does not depend on n, on the other rows or on the
    order of calls.
    """

    def __init__(self, keys: UInt64, view: str = "main") -> None:
        self.keys = keys
        self.view = view
        # Views into the same memory: the two halves of every key (which is which does not matter).
        halves = np.ascontiguousarray(keys).view(np.uint32).reshape(-1, 2)
        self._low, self._high = halves[:, 0], halves[:, 1]

    def inside(self, view: str) -> Draw:
        """The draw of another view of the same rows."""
        return Draw(self.keys, view)

    def take(self, rows: NDArray[np.intp]) -> Draw:
        """The draw of some of the rows (an index array; repeats allowed)."""
        return Draw(self.keys[rows], self.view)

    def bits(self, name: str, n: int | None = None) -> UInt32:
        """Uniform 32-bit words, (B,) or (B, n)."""
        low, high = salts(self.view, name)
        if n is None:
            return _mix32(self._low ^ low, self._high ^ high)
        return _mix32(_counters(n) + (self._low ^ low)[:, None], (self._high ^ high)[:, None])

    def bits_at(self, name: str, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> UInt32:
        """The words `bits(name, n)[rows, columns]`, computed only there; (M,)."""
        low, high = salts(self.view, name)
        x = columns.astype(np.uint32)
        x *= _GOLDEN32
        x += (self._low ^ low).take(rows)
        return _mix32(x, (self._high ^ high).take(rows))

    def uniform(self, name: str, n: int | None = None) -> NDArray[np.float64]:
        """Numbers in [0, 1) with 32 random bits, (B,) or (B, n)."""
        return self.bits(name, n).astype(np.float64) * 2.0**-32

    def integers(self, name: str, high: int | NDArray[np.integer], n: int | None = None) -> NDArray[np.int64]:
        """Integers in [0, high), by multiply and shift; `high` may be an array that broadcasts."""
        return integers_below(self.bits(name, n), high)


def _mix32(x: UInt32, high: UInt32) -> UInt32:
    """Two rounds of multiply and xor-shift, the second half of the key between them; changes `x` in place."""
    x ^= x >> _S16
    x *= _M1
    x += high
    x ^= x >> _S15
    x *= _M2
    x ^= x >> _S16
    return x


def integers_below(bits: UInt32, high: int | NDArray[np.integer]) -> NDArray[np.int64]:
    """Random 32-bit words → integers in [0, high), by multiply and shift."""
    return (bits.astype(np.int64) * high) >> 32


@lru_cache(maxsize=64)
def _counters(n: int) -> UInt32:
    counters = np.arange(n, dtype=np.uint32) * _GOLDEN32
    counters.flags.writeable = False
    return counters


def shuffled(index: NDArray[np.int64], size: NDArray[np.int64], key: UInt64) -> NDArray[np.int64]:
    """Where a keyed permutation of `size` items sends each `index`; (N,) of each, sizes and keys may differ. No array is held.

    Four rounds of a Feistel network over the next even power of two, repeated for as long as the result is not below `size`
    (cycle walking: Black and Rogaway, 2002, §3).
    """
    half = np.maximum((np.ceil(np.log2(np.maximum(size, 2))).astype(np.uint64) + np.uint64(1)) >> np.uint64(1), np.uint64(1))
    positions = index.astype(np.uint64)
    limit = size.astype(np.uint64)
    left = np.arange(len(positions))
    while len(left):
        positions[left] = _rounds(positions[left], half[left], key[left])
        left = left[positions[left] >= limit[left]]
    return positions.astype(np.int64)


_ROUNDS = tuple(fold("round", number) for number in range(4))


def _rounds(x: UInt64, half: UInt64, key: UInt64) -> UInt64:
    mask = (np.uint64(1) << half) - np.uint64(1)
    high, low = x >> half, x & mask
    for salt in _ROUNDS:
        mixed = mix_keys(low + key, salt)
        high, low = low, high ^ (mixed & mask)
    return (high << half) | low
