"""GloVe's AdaGrad, cell by cell, as the authors' code has it (stanfordnlp/GloVe `glove.c`).

With diff = w·c + b + b' - ln x and g = f(x)·diff, f(x) = min(1, (x / limit)^power): every component of a vector takes
t = rate · clip(g · other), steps by t / √G, then G ← G + t²; a bias steps by g / √G, then G ← G + g², without rate and clip.
Vectors of both words are read before either changes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np

from cloze.kernels.compiling import OPTIONS, kernel

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_ONE, _HALF = np.uint64(1), np.uint64(32)


@numba.njit(inline="always")
def shuffle(index: Any, size: Any, key: Any) -> Any:
    """Where an index goes in the random order of `size` that follows from `key`: `counting.cells.shuffled`, one by one."""
    bits = _ONE
    while (_ONE << bits) < size:
        bits += _ONE
    mask, half = (_ONE << bits) - _ONE, (bits + _ONE) >> _ONE
    x = np.uint64(index)
    while True:
        x = (x * _FIRST + key) & mask
        x ^= x >> half
        x = (x * _SECOND + (key >> _HALF)) & mask
        x ^= x >> half
        if x < size:
            return np.int64(x)


@cache
def glove(width: int) -> Any:
    """The kernel for vectors of one width.

    `train(cells, jobs, keys, words, contexts, settings, totals)`: `cells` are rows, columns and counts; `jobs` (J, 4) int64 the
    first cell of a piece, its cells, and which of them, in the order of `keys` (J,), to do; `words` and `contexts` each
    vectors (V, width), biases (V,) and the sums of squares of both, float32, changed in place; `settings` (4,) float64 limit,
    power, rate and clip; `totals` (2,) float64 gains the loss and the squared differences.
    """

    @kernel(**OPTIONS)
    def train(cells: Any, jobs: Any, keys: Any, words: Any, contexts: Any, settings: Any, totals: Any) -> None:
        rows, columns, counts = cells
        w, b, gw, gb = words
        c, d, gc, gd = contexts
        power, rate, clip = np.float32(settings[1]), np.float32(settings[2]), np.float32(settings[3])
        limit = np.float32(np.log(settings[0]))
        loss = squares = 0.0
        for job in range(len(jobs)):
            start, size = jobs[job, 0], np.uint64(jobs[job, 1])
            for index in range(jobs[job, 2], jobs[job, 3]):
                at = start + shuffle(index, size, keys[job])
                i, j = rows[at], columns[at]
                word, context, g_word, g_context = w[i], c[j], gw[i], gc[j]
                dot = np.float32(0.0)
                for k in range(width):
                    dot += word[k] * context[k]
                log = np.log(counts[at])
                diff = dot + b[i] + d[j] - log
                weight = np.exp(power * (log - limit)) if log < limit else np.float32(1.0)
                g = weight * diff
                loss += 0.5 * g * diff
                squares += diff * diff
                for k in range(width):
                    x, y = word[k], context[k]
                    s = min(max(g * y, -clip), clip) * rate
                    t = min(max(g * x, -clip), clip) * rate
                    word[k] = x - s / np.sqrt(g_word[k])
                    context[k] = y - t / np.sqrt(g_context[k])
                    g_word[k] += s * s
                    g_context[k] += t * t
                b[i] -= g / np.sqrt(gb[i])
                gb[i] += g * g
                d[j] -= g / np.sqrt(gd[j])
                gd[j] += g * g
        totals[0] += loss
        totals[1] += squares

    return train
