"""Numbers for the distinct chunks of a text: one scan over its bytes with a hash table."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernels.compiling import kernel

_LONGEST = 15
_EIGHT = 8


@kernel(inline="always")
def _slot_of(low: Any, high: Any, last: Any) -> Any:
    mixed = (low * np.uint64(0x9E3779B97F4A7C15)) ^ (high * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed & np.uint64(last))


@kernel()
def scan(
    raw: Any, at: int, classes: Any, fold: Any, keys: Any, counts: Any, slots: Any, used: int,
    numbers: Any, done: int, long: Any, longs: int, lines: Any, ended: int,
) -> tuple[int, int, int, int, int]:
    """Scan from byte `at` to the end, or to the first new chunk for which `keys` has no room."""
    size, last, room = len(raw), len(slots) - 1, len(keys)
    while at < size:
        kind = classes[raw[at]]
        if kind == 0:
            at += 1
            continue
        if kind == 3:
            lines[ended] = done
            ended += 1
            at += 1
            continue
        begin, low, high, length = at, np.uint64(0), np.uint64(0), 0
        if kind == 2:
            low, length = np.uint64(fold[raw[at]]), 1
            at += 1
        else:
            while at < size and classes[raw[at]] == 1:
                byte = np.uint64(fold[raw[at]])
                if length < _EIGHT:
                    low |= byte << np.uint64(8 * length)
                elif length < _LONGEST:
                    high |= byte << np.uint64(8 * (length - _EIGHT))
                length += 1
                at += 1
        if length > _LONGEST:
            long[longs, 0], long[longs, 1], long[longs, 2] = done, begin, length
            longs += 1
            numbers[done] = -1
            done += 1
            continue
        high |= np.uint64(length) << np.uint64(56)
        slot = _slot_of(low, high, last)
        while True:
            number = slots[slot]
            if number < 0:
                if used == room:
                    return begin, done, longs, ended, used
                keys[used, 0], keys[used, 1] = low, high
                slots[slot] = number = used
                used += 1
                break
            if keys[number, 0] == low and keys[number, 1] == high:
                break
            slot = (slot + 1) & last
        counts[number] += 1
        numbers[done] = number
        done += 1
    return at, done, longs, ended, used


@kernel()
def place(keys: Any, slots: Any, used: int) -> None:
    """Put the first `used` keys into empty slots. Keys of reserved numbers are zero and never looked up."""
    last = len(slots) - 1
    for number in range(used):
        if keys[number, 1] == 0:
            continue
        slot = _slot_of(keys[number, 0], keys[number, 1], last)
        while slots[slot] >= 0:
            slot = (slot + 1) & last
        slots[slot] = number


@kernel()
def measure(numbers: Any, count: Any, before: Any) -> int:
    """Write the number of ids before each chunk into `before`. Returns the total."""
    total = 0
    for i in range(len(numbers)):
        before[i] = total
        total += count[numbers[i]]
    before[len(numbers)] = total
    return total


@kernel()
def gather(numbers: Any, starts: Any, before: Any, pool: Any, ids: Any) -> None:
    """Copy the ids of every chunk from the pool to their positions."""
    for i in range(len(numbers)):
        source = starts[numbers[i]]
        for to in range(before[i], before[i + 1]):
            ids[to] = pool[source]
            source += 1
