"""Tables that kernels read: thresholds, alias tables, the coarse sigmoid of word2vec.c. Plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FULL = float(2**32)

#: The table of the sigmoid spans -6 … 6; beyond it the value is that of the border.
BORDER = 6.0


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
