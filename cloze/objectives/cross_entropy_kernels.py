"""The compiled form of the loss over rows of scores: each row while it is in the cache. Importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cloze.kernel import SIMD_WIDTH, kernel
from cloze.simd import (
    STRICT,
    add,
    add_product,
    equal,
    exponential,
    larger,
    largest_of,
    load_half,
    load_one,
    spread,
    store_half,
    store_one,
    subtract,
    total_of,
)

_LOWEST, _ZERO = np.float32(-np.inf), np.float32(0.0)


@kernel(**STRICT)
def take_losses(
    scores: Any, targets: Any, weights: Any, smoothing: Any, z_loss: Any, into: Any, losses: Any, right: Any, first: Any,
    last: Any,
) -> None:
    """Weighted loss, and weight where the target alone is best, of rows first … last - 1 of bfloat16 scores (M, C) as int16.

    `into` receives their gradient: it may be the scores, or empty. `targets` int64, `weights` float32, `losses` and `right`
    float64, (M,) all.
    """
    classes = scores.shape[1]
    for row in range(first, last):
        top, sum_ = spread(_LOWEST), spread(_ZERO)
        for at in range(0, classes, SIMD_WIDTH):
            x = load_half(scores, row, at, classes - at, _LOWEST)
            top = larger(x, top)
            if smoothing > 0.0:
                sum_ = add(sum_, load_half(scores, row, at, classes - at, _ZERO))
        best = largest_of(top)
        top = spread(best)
        chosen = load_one(scores, row, targets[row])
        right[row] = 0.0
        if chosen == best:
            like = spread(_ZERO)
            for at in range(0, classes, SIMD_WIDTH):
                like = add(like, equal(load_half(scores, row, at, classes - at, _LOWEST), top))
            right[row] = weights[row] * (total_of(like) < 1.5)
        total = spread(_ZERO)
        for at in range(0, classes, SIMD_WIDTH):
            total = add(total, exponential(subtract(load_half(scores, row, at, classes - at, _LOWEST), top)))
        mass = np.float64(total_of(total))
        expected = chosen * (1.0 - smoothing) + total_of(sum_) / classes * smoothing
        log_sum = math.log(mass) + best
        losses[row] = weights[row] * (log_sum - expected + z_loss * log_sum * log_sum)
        if len(into):
            held = (1.0 + 2.0 * z_loss * log_sum) / mass
            share, even = spread(np.float32(weights[row] * held)), spread(np.float32(-weights[row] * smoothing / classes))
            for at in range(0, classes, SIMD_WIDTH):
                x = exponential(subtract(load_half(scores, row, at, classes - at, _LOWEST), top))
                store_half(into, row, at, classes - at, add_product(even, x, share))
            gradient = math.exp(np.float64(chosen - best)) * held + smoothing - 1.0 - smoothing / classes
            store_one(into, row, targets[row], np.float32(weights[row] * gradient))
