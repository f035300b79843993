"""From how good each token is as the first and as the last of an answer to the best answer, and whether to give one at all.

Pure functions over numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]
Int64 = NDArray[np.int64]


class BestSpan(NamedTuple):
    """The best span of a row: its first and last token, and the sum of their scores."""

    first: int
    last: int
    score: float


def best_span(first: Float, last: Float, max_length: int, begins: NDArray[np.bool_] | None = None) -> BestSpan | None:
    """The span of at most `max_length` tokens with the highest sum of scores; of equals the earliest, then the shortest.

    `first` and `last` (L,) are the scores of each token as the first and as the last of the span; `begins` (L,) says where it may
    begin. None where it may begin nowhere.
    """
    width = min(max_length, len(last))
    if not width:
        return None
    reach = np.lib.stride_tricks.sliding_window_view(np.append(last, np.full(width - 1, -np.inf, last.dtype)), width)
    sums = first[:, None] + reach
    if begins is not None:
        sums = np.where(begins[:, None], sums, -np.inf)
    index = int(sums.argmax())
    start, more = divmod(index, width)
    return None if sums[start, more] == -np.inf else BestSpan(start, start + more, float(sums[start, more]))


def best_positions(begin: Int64, count: Int64, tokens: int) -> list[NDArray[np.bool_]]:
    """For each window over a text of so many tokens, which of the tokens it shows have nowhere more context (count,).

    Context is the smaller of the tokens to the left and to the right, and a hundredth of the length of the window; of equals the
    first window counts (`_check_is_max_context` in google-research/bert, run_squad.py).
    """
    most = np.full(tokens, -np.inf)
    owner = np.full(tokens, -1)
    for number, (start, size) in enumerate(zip(begin.tolist(), count.tolist(), strict=True)):
        positions = np.arange(size)
        context = np.minimum(positions, size - 1 - positions) + 0.01 * size
        span = slice(start, start + size)
        better = context > most[span]
        most[span] = np.where(better, context, most[span])
        owner[span] = np.where(better, number, owner[span])
    return [owner[start : start + size] == number for number, (start, size) in enumerate(zip(begin, count, strict=True))]


def best_threshold(margins: Sequence[float], silent: Sequence[float], answered: Sequence[float]) -> float:
    """The margin above which no answer is given, so that the sum of scores is highest.

    A question's margin is by how much "no answer" beats the best answer; `silent` and `answered` are its scores either way. Of
    equal sums the lowest threshold is taken; it lies half-way between two margins (`find_best_thresh` in SQuAD 2's script takes
    the lower one of the two).
    """
    margin_values = np.asarray(margins, np.float64)
    gain = np.asarray(answered, np.float64) - np.asarray(silent, np.float64)
    order = np.argsort(margin_values, kind="stable")
    ordered = margin_values[order]
    sums = np.concatenate([[0.0], np.cumsum(gain[order])])
    cuts = np.flatnonzero(np.concatenate([[True], ordered[1:] > ordered[:-1], [True]]))  # between different margins alone
    best = int(cuts[np.argmax(np.round(sums[cuts], 9))])
    below = ordered[best - 1] if best else ordered[0] - 2.0
    above = ordered[best] if best < len(ordered) else ordered[-1] + 2.0
    return float((below + above) / 2)
