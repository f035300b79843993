"""The compiled form of `softmax.py`: all that happens to a row of scores while it is in registers and the first cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from cloze.kernel import SIMD_WIDTH, kernel
from cloze.simd import (
    STRICT,
    add,
    exponential,
    keep_elements,
    larger,
    largest_of,
    load,
    load_half,
    multiply,
    spread,
    store,
    store_half,
    subtract,
    total_of,
)

_LOWEST, _ZERO, _ONE = np.float32(-np.inf), np.float32(0.0), np.float32(1.0)


@kernel(**STRICT)
def soften(scores: Any, added: Any, steps: Any, sizes: Any, keep: Any, used: Any, wide: Any) -> None:
    """Rows of scores (B·H·Q, K) become their softmax, `used` those of its numbers that `keep` lets through.

    All (·, K), bits of bfloat16 or the -1 and 0 of a mask, as int16. `steps` are those that batch, head and query take in the
    rows of `added`, `sizes` heads and queries. `added`, and `keep` with `used`, may be empty: without. `wide`, (1, K) and up
    to SIMD_WIDTH more, is room.
    """
    rows, length = scores.shape
    heads, queries = sizes
    for row in range(rows):
        bias = row // (heads * queries) * steps[0] + row // queries % heads * steps[1] + row % queries * steps[2]
        top = spread(_LOWEST)
        for at in range(0, length, SIMD_WIDTH):
            x = load_half(scores, row, at, length - at, _LOWEST)
            if len(added):
                x = add(x, load_half(added, bias, at, length - at, _ZERO))
            store(wide, 0, at, x)
            top = larger(x, top)
        top, total = spread(largest_of(top)), spread(_ZERO)
        for at in range(0, length, SIMD_WIDTH):
            x = exponential(subtract(load(wide, 0, at), top))
            store(wide, 0, at, x)
            total = add(total, x)
        share = spread(_ONE / total_of(total))
        for at in range(0, length, SIMD_WIDTH):
            x = multiply(load(wide, 0, at), share)
            store_half(scores, row, at, length - at, x)
            if len(keep):
                store_half(used, row, at, length - at, keep_elements(x, keep, row, at, length - at))

