"""GELU's tanh form and its way back over bfloat16 numbers, one pass each."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from cloze.kernels.compiling import STRICT, kernel
from cloze.kernels.floats import exponential, narrow, widen

_ZERO, _ONE, _FAR, _MOST = np.float32(0.0), np.float32(1.0), np.float32(30.0), np.float32(80.0)
#: tanh(√(2/π) (x + 0.044715 x³)) = 2 σ(2 √(2/π) (x + 0.044715 x³)) - 1
_LINE, _CUBE = np.float32(2 * 0.7978845608028654), np.float32(2 * 0.7978845608028654 * 0.044715)
_BEND = np.float32(3 * 2 * 0.7978845608028654 * 0.044715)


@numba.njit(inline="always")
def _near(x: Any) -> Any:
    """`x`, or ±30 where it is farther out."""
    low = -_FAR if x < -_FAR else x
    return _FAR if low > _FAR else low


@numba.njit(inline="always")
def _share(x: Any, square: Any) -> Any:
    """σ of the cubic, for |x| up to 30: beyond it is 0 or 1 in any case, and its argument too large for `exponential`."""
    down = -x * (_LINE + square * _CUBE)
    return _ONE / (_ONE + exponential(_MOST if down > _MOST else down))


@kernel(**STRICT)
def gelu_tanh(numbers: Any, out: Any) -> None:
    """out = GELU(numbers), bits of bfloat16 (N,) as int16."""
    for i in range(len(numbers)):
        x = widen(numbers[i])
        near = _near(x)
        gelu = _ZERO if x < -_FAR else x * _share(near, near * near)
        out[i] = narrow(x if np.isnan(x) else gelu)


@kernel(**STRICT)
def gelu_tanh_back(numbers: Any, gradient: Any) -> None:
    """The gradient of GELU's output becomes that of its input, both (N,)."""
    for i in range(len(numbers)):
        x = widen(numbers[i])
        near = _near(x)
        square = near * near
        share = _share(near, square)
        slope = share * (_ONE + near * (_LINE + square * _BEND) * (_ONE - share))
        gradient[i] = narrow((x if np.isnan(x) else slope) * widen(gradient[i]))
