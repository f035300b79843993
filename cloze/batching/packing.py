"""Which examples share a row: next-fit over the planned lengths, decided once per epoch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def pack(length: NDArray[np.int64], width: int, lookahead: int = 64) -> NDArray[np.int64]:
    """Pack examples into rows of `width` tokens.

    Greedy best fit over a window of `lookahead` open rows; a row leaves the window when it is full, or as the oldest if there
    are too many. Returns an (N, 2) array: the row of each example in packing order, and the example's index. Rows ascend. The
    result is a pure function of the lengths.
    """
    open_rows: list[list[int]] = []
    space: list[int] = []
    closed: list[list[int]] = []
    for example, size in enumerate(length.tolist()):
        best, best_left = -1, width + 1
        for place, left in enumerate(space):
            if size <= left < best_left:
                best, best_left = place, left
                if left == size:
                    break
        if best < 0:
            open_rows.append([example])
            space.append(width - size)
            best = len(space) - 1
        else:
            open_rows[best].append(example)
            space[best] -= size
        if space[best] < 4:  # too little room for any example
            closed.append(open_rows.pop(best))
            space.pop(best)
        elif len(space) > lookahead:
            closed.append(open_rows.pop(0))
            space.pop(0)
    closed += open_rows
    counts = np.array([len(row) for row in closed], np.int64)
    taken = np.array([example for row in closed for example in row], np.int64)
    return np.stack([np.repeat(np.arange(len(closed)), counts), taken], axis=1).reshape(-1, 2)
