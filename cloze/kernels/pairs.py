"""Counting pairs of words: a hash table with linear probing."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from cloze.kernels.compiling import kernel

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_ONE = np.uint64(1)


@numba.njit(inline="always")
def _slot(key: Any, slots: Any) -> Any:
    """The first slot to probe for a key: the upper half of a product, scaled to the number of slots."""
    return np.int64((((key * _SPREAD) >> _HALF) * np.uint64(slots)) >> _HALF)


@numba.njit(inline="always")
def _add(key: Any, weight: Any, keys: Any, sums: Any, used: Any) -> Any:
    """Add to the sum of a key; keys are stored plus one, so that zero marks an empty slot."""
    slots = len(keys)
    at = _slot(key, slots)
    while keys[at] != key:
        if keys[at] == np.uint64(0):
            keys[at] = key
            used[0] += 1
            break
        at += 1
        if at == slots:
            at = 0
    sums[at] += weight


@kernel()
def count(
    ids: Any, left: Any, begin: Any, weights: Any, vocab_size: Any, symmetric: Any, me: Any, threads: Any, keys: Any, sums: Any,
    used: Any, limit: Any,
) -> Any:
    """Add the pairs of the words from `begin` on whose first id is thread `me`'s; returns where it stopped: at the end, or
    before the first word that might not fit when `limit` entries are used."""
    size = np.uint64(vocab_size)
    for i in range(begin, len(ids)):
        if used[0] > limit:
            return i
        word = ids[i]
        for distance in range(1, left[i] + 1):
            other = ids[i - distance]
            first, second = word, other
            if symmetric and other > word:
                first, second = other, word
            if threads > 1 and first % threads != me:
                continue
            _add(np.uint64(first) * size + np.uint64(second) + _ONE, weights[distance - 1], keys, sums, used)
    return len(ids)


@kernel()
def rehash(old_keys: Any, old_sums: Any, keys: Any, sums: Any, used: Any) -> None:
    """Move every entry into a larger table."""
    for at in range(len(old_keys)):
        if old_keys[at] != np.uint64(0):
            _add(old_keys[at], old_sums[at], keys, sums, used)


@kernel()
def taken(keys: Any, sums: Any, number: Any) -> Any:
    """The entries of a table, `number` of them, by ascending key: keys and sums. Sorts by eleven bits at a time."""
    entry_keys, weighed = np.empty(number, np.uint64), np.empty(number, np.float64)
    at, highest = 0, np.uint64(0)
    for slot in range(len(keys)):
        if keys[slot] != np.uint64(0):
            entry_keys[at], weighed[at] = keys[slot] - _ONE, sums[slot]
            highest = max(highest, entry_keys[at])
            at += 1
    spare, spared = np.empty(number, np.uint64), np.empty(number, np.float64)
    begins = np.empty(2049, np.int64)
    shift, low = np.uint64(0), np.uint64(2047)
    while shift < np.uint64(64) and (highest >> shift) > np.uint64(0):
        begins[:] = 0
        for n in range(number):
            begins[np.int64((entry_keys[n] >> shift) & low) + 1] += 1
        for n in range(2048):
            begins[n + 1] += begins[n]
        for n in range(number):
            digit = np.int64((entry_keys[n] >> shift) & low)
            to = begins[digit]
            begins[digit] = to + 1
            spare[to], spared[to] = entry_keys[n], weighed[n]
        entry_keys, spare, weighed, spared = spare, entry_keys, spared, weighed
        shift += np.uint64(11)
    return entry_keys, weighed


@kernel()
def tally(keys: Any, vocab_size: Any, tile: Any, across: Any, symmetric: Any, sizes: Any) -> None:
    """Count the cells of pairs by tile."""
    size = np.uint64(vocab_size)
    for at in range(len(keys)):
        row = np.int64(keys[at] // size)
        column = np.int64(keys[at]) - row * vocab_size
        sizes[(row // tile) * across + column // tile] += 1
        if symmetric and row != column:
            sizes[(column // tile) * across + row // tile] += 1


@kernel()
def place(
    keys: Any, sums: Any, vocab_size: Any, tile: Any, across: Any, symmetric: Any, following: Any, rows: Any, columns: Any,
    counts: Any,
) -> None:
    """Write the cells of pairs to the end of their tiles; `following` holds these positions and is advanced."""
    size = np.uint64(vocab_size)
    for at in range(len(keys)):
        row = np.int64(keys[at] // size)
        column = np.int64(keys[at]) - row * vocab_size
        twice = 2.0 if symmetric and row == column else 1.0
        here = (row // tile) * across + column // tile
        to = following[here]
        following[here] = to + 1
        rows[to], columns[to], counts[to] = row, column, twice * sums[at]
        if symmetric and row != column:
            here = (column // tile) * across + row // tile
            to = following[here]
            following[here] = to + 1
            rows[to], columns[to], counts[to] = column, row, sums[at]
