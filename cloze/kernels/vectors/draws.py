"""Random numbers of the kernels, and σ from a table.

A job's draws come from splitmix64 counters that start at the job's own key (`cloze.rng.fold`), so they do not depend on
the thread that does the job. The state never leaves compiled code: passed through Python it would come back as an int.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from cloze.kernels.vectors.tables import BORDER

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

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
