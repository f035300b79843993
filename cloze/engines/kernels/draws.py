"""Random numbers, tables and thresholds of the compiled kernels.

A job's draws come from splitmix64 counters that start at the job's own key (`cloze.rng.fold`), so they do not depend on
the thread that does the job. The state never leaves compiled code: passed through Python it would come back as an int.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_FULL = float(2**32)

#: The table of the sigmoid spans -6 … 6; beyond it the value is that of the border.
BORDER = 6.0


@numba.njit(inline="always")
def mix(state: Any) -> Any:
    """64 random bits from a counter: the splitmix64 finaliser."""
    x = state
    x ^= x >> _S30
    x *= _M1
    x ^= x >> _S27
    x *= _M2
    x ^= x >> _S31
    return x


@numba.njit(inline="always")
def high(bits: Any) -> Any:
    """The upper 32 bits."""
    return bits >> _S32


@numba.njit(inline="always")
def below(bits: Any, count: Any) -> Any:
    """An integer in [0, count) from the upper 32 bits, by multiply and shift."""
    return np.int64((high(bits) * np.uint64(count)) >> _S32)


@numba.njit(inline="always")
def draw(bits: Any, alias: Any) -> Any:
    """An id from an alias table: the upper half of the bits chooses the column, the lower half the side of it."""
    column = below(bits, len(alias))
    border, other = np.uint64(alias[column, 0]), np.int64(alias[column, 1])
    return column + (other - column) * np.int64((bits & _LOW) >= border)  # a branch would be mispredicted half the time


def thresholds(keep: NDArray[np.floating[Any]]) -> NDArray[np.uint64]:
    """Probabilities (V,) → (V,) numbers that 32 random bits must stay below; 0 never, 1 always."""
    return np.rint(np.clip(keep, 0.0, 1.0).astype(np.float64) * _FULL).astype(np.uint64)


def alias_table(weights: NDArray[np.floating[Any]]) -> NDArray[np.uint32]:
    """The alias table (V, 2) of a distribution: threshold and other id of every column (Vose 1991).

    One column is one cache line read per draw. Probabilities are met to within 2^-32; an id of weight 0 is never drawn.
    """
    scaled = np.asarray(weights, dtype=np.float64) * (len(weights) / np.sum(weights, dtype=np.float64))
    table = np.empty((len(scaled), 2), dtype=np.uint32)
    table[:, 1] = int(np.argmax(scaled))  # whatever rounding leaves over goes to the likeliest id
    _fill_alias(scaled, table)
    return table


def _fill_alias(scaled: NDArray[np.float64], table: NDArray[np.uint32]) -> None:
    """Pair columns that have too little with ids that have too much."""
    small = np.flatnonzero(scaled < 1.0).tolist()
    large = np.flatnonzero(scaled >= 1.0).tolist()
    rest = scaled.tolist()
    while small and large:
        low, top = small.pop(), large[-1]
        table[low] = min(round(rest[low] * _FULL), 2**32 - 1), top
        rest[top] -= 1.0 - rest[low]
        if rest[top] < 1.0:
            small.append(large.pop())
    for column in (*small, *large):
        other = column if scaled[column] > 0 else table[column, 1]
        table[column] = 2**32 - 1 if scaled[column] > 0 else 0, other


def coarse_table() -> NDArray[np.float32]:
    """The table of word2vec.c and gensim, (1000,): σ at the lower end of 1,000 cells over -6 … 6; cell 83 · (x + 6) is read."""
    steep = np.exp(((np.arange(1000, dtype=np.float32) / np.float32(1000) * 2 - 1) * 6).astype(np.float64)).astype(np.float32)
    return steep / (steep + np.float32(1.0))


@numba.njit(inline="always")
def squash(x: Any, table: Any, scale: Any) -> Any:
    """σ(x): by the table's cell ⌊scale · (x + 6)⌋, 0 or 1 beyond ±6; scale 0: exactly."""
    if scale == 0.0:
        return np.float32(1.0) / (np.float32(1.0) + np.exp(-x))
    if x >= BORDER:
        return np.float32(1.0)
    if x <= -BORDER:
        return np.float32(0.0)
    return table[np.int64((x + np.float32(BORDER)) * scale)]
