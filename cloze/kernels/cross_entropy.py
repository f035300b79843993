"""The loss over rows of scores, each row while it is in the cache."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from cloze.kernels.compiling import STRICT, kernel
from cloze.kernels.floats import exponential, from_order, narrow, order, widen

_ZERO = np.float32(0.0)


@numba.njit(inline="always")
def _write_gradient(scores: Any, into: Any, best: Any, share: Any, even: Any) -> None:
    """The share of every class in the gradient of one row."""
    for c in range(len(scores)):
        into[c] = narrow(even + exponential(widen(scores[c]) - best) * share)


@kernel(**STRICT)
def take_losses(
    scores: Any, targets: Any, weights: Any, smoothing: Any, z_loss: Any, into: Any, in_place: Any, losses: Any, right: Any,
    first: Any, last: Any,
) -> None:
    """Weighted loss, and weight where the target alone is best, of rows first … last - 1 of bfloat16 scores (M, C) as int16.

    `into` receives their gradient: it is the scores if `in_place`, and may be empty. `targets` int64, `weights` float32, `losses`
    and `right` float64, (M,) all.
    """
    classes = scores.shape[1]
    for row in range(first, last):
        highest, total, sum_ = order(widen(scores[row, 0])), _ZERO, _ZERO
        for c in range(classes):
            highest = max(highest, order(widen(scores[row, c])))
        if smoothing > 0.0:
            for c in range(classes):
                sum_ += widen(scores[row, c])
        best, chosen = from_order(highest), widen(scores[row, targets[row]])
        right[row] = 0.0
        if chosen == best:
            like = np.int32(0)
            for c in range(classes):
                like += np.int32(widen(scores[row, c]) == best)
            right[row] = weights[row] * (like == 1)
        for c in range(classes):
            total += exponential(widen(scores[row, c]) - best)
        mass = np.float64(total)
        expected = chosen * (1.0 - smoothing) + sum_ / classes * smoothing
        log_sum = math.log(mass) + best
        losses[row] = weights[row] * (log_sum - expected + z_loss * log_sum * log_sum)
        if len(into):
            held = (1.0 + 2.0 * z_loss * log_sum) / mass
            share, even = np.float32(weights[row] * held), np.float32(-weights[row] * smoothing / classes)
            if in_place:  # a loop of its own: that over two arrays is not vectorised where they overlap
                _write_gradient(scores[row], scores[row], best, share, even)
            else:
                _write_gradient(scores[row], into[row], best, share, even)
            gradient = math.exp(np.float64(chosen - best)) * held + smoothing - 1.0 - smoothing / classes
            into[row, targets[row]] = narrow(np.float32(weights[row] * gradient))
