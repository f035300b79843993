"""GELU's tanh form and its way back over bfloat16 numbers, one pass each. Importing this imports numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernel import SIMD_WIDTH, kernel
from cloze.simd import (
    INNER,
    STRICT,
    add,
    add_product,
    divide,
    exponential,
    load_half,
    multiply,
    spread,
    store_half,
    subtract,
    unless_nan,
    where_below,
)

_ZERO, _ONE, _FAR = np.float32(0.0), np.float32(1.0), np.float32(30.0)
#: tanh(√(2/π) (x + 0.044715 x³)) = 2 σ(2 √(2/π) (x + 0.044715 x³)) - 1
_LINE, _CUBE = np.float32(2 * 0.7978845608028654), np.float32(2 * 0.7978845608028654 * 0.044715)
_BEND = np.float32(3 * 2 * 0.7978845608028654 * 0.044715)


@kernel(**INNER)
def _share(x: Any, square: Any) -> Any:
    """σ of the cubic, for |x| up to 30: beyond it is 0 or 1 in any case, and its argument too large for `exponential`."""
    down = multiply(x, add_product(spread(-_LINE), square, spread(-_CUBE)))
    most = spread(np.float32(80.0))
    ones = spread(_ONE)
    return divide(ones, add(ones, exponential(where_below(down, most, down, most))))


@kernel(**INNER)
def _near(x: Any) -> Any:
    """`x`, or ±30 where it is farther out."""
    low, high = spread(-_FAR), spread(_FAR)
    return where_below(x, low, low, where_below(high, x, high, x))


@kernel(**STRICT)
def gelu_tanh(numbers: Any, out: Any) -> None:
    """out = GELU(numbers), bits of bfloat16 (1, N) as int16."""
    count = numbers.shape[1]
    for at in range(0, count, SIMD_WIDTH):
        x = load_half(numbers, 0, at, count - at, _ZERO)
        near = _near(x)
        gelu = multiply(x, _share(near, multiply(near, near)))
        store_half(out, 0, at, count - at, unless_nan(x, where_below(x, spread(-_FAR), spread(_ZERO), gelu)))


@kernel(**STRICT)
def gelu_tanh_back(numbers: Any, gradient: Any) -> None:
    """The gradient of GELU's output becomes that of its input, both (1, N)."""
    count, ones = numbers.shape[1], spread(_ONE)
    for at in range(0, count, SIMD_WIDTH):
        x = load_half(numbers, 0, at, count - at, _ZERO)
        near = _near(x)
        square = multiply(near, near)
        share = _share(near, square)
        steep = multiply(multiply(near, add_product(spread(_LINE), square, spread(_BEND))), subtract(ones, share))
        slope = unless_nan(x, multiply(share, add(ones, steep)))
        store_half(gradient, 0, at, count - at, multiply(slope, load_half(gradient, 0, at, count - at, _ZERO)))
