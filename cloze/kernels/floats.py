"""Arithmetic of floats that loops of kernels vectorise: bfloat16 by its bits, the order of floats, an exponential.

Numbers of bfloat16 are int16 here, the upper halves of float32. The functions are inlined, with the `fastmath` of their kernel.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

_SIXTEEN, _ALL_BUT_SIGN = np.int32(16), np.int32(0x7FFFFFFF)
_LOWEST, _LOG2_E, _ZERO = np.float32(-126.0), np.float32(1.4426950408889634), np.float32(0.0)
#: 2^x on [-1/2, 1/2]: the polynomial of degree 5 with the smallest relative error (7.5e-8), by reweighted least squares.
_POWERS = tuple(np.float32(x) for x in (
    0.0013276472047340393, 0.009675541384669528, 0.05550713273764735, 0.2402211972291482, 0.6931469670643249, 1.0000000716548716,
))  # fmt: skip


@numba.njit(inline="always")
def widen(half: Any) -> Any:
    """bfloat16 to float32."""
    return np.int32(np.int32(half) << _SIXTEEN).view(np.float32)


@numba.njit(inline="always")
def narrow(x: Any) -> Any:
    """float32 to the nearest bfloat16, ties to even; a number that is none stays none."""
    bits = np.float32(x).view(np.int32)
    return np.int16(np.int32(bits + np.int32(0x7FFF) + np.int32(np.int32(bits >> _SIXTEEN) & np.int32(1))) >> _SIXTEEN)


@numba.njit(inline="always")
def order(x: Any) -> Any:
    """An int32 that is larger for a larger float32: the compiler vectorises a maximum of integers, but none of floats."""
    bits = np.float32(x).view(np.int32)
    return np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & _ALL_BUT_SIGN))


@numba.njit(inline="always")
def from_order(number: Any) -> Any:
    """The float32 of an `order`."""
    bits = np.int32(number)
    return np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & _ALL_BUT_SIGN)).view(np.float32)


@numba.njit(inline="always")
def exponential(x: Any) -> Any:
    """e to the power of x, for values up to 80; exactly zero from -87.3 down."""
    power = x * _LOG2_E
    in_range = _LOWEST if power < _LOWEST else power
    whole = np.rint(in_range)
    rest = in_range - whole
    estimate = _POWERS[0]
    estimate = estimate * rest + _POWERS[1]
    estimate = estimate * rest + _POWERS[2]
    estimate = estimate * rest + _POWERS[3]
    estimate = estimate * rest + _POWERS[4]
    estimate = estimate * rest + _POWERS[5]
    shifted = np.int32(np.float32(estimate).view(np.int32) + np.int32(np.int32(whole) << np.int32(23)))
    return _ZERO if power < _LOWEST else np.int32(shifted).view(np.float32)
