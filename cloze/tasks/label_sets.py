"""How well predicted sets of labels agree with given ones: F1, exact match, mean average precision."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.errors import TaskError

#: By name, whether more is better.
SET_METRICS = {"mean_average_precision": True, "micro_f1": True, "macro_f1": True, "exact_match": True}


def set_metrics(truth: ArrayLike, probabilities: ArrayLike, threshold: float) -> dict[str, float]:
    """The metrics of probabilities (N, C) against sets (N, C) of 0 and 1; a class is predicted from `threshold` on.

    A label that is neither given nor predicted anywhere does not count in `macro_f1`, and one that is never given not in
    `mean_average_precision`; a mean of nothing is 0. No examples are a `TaskError`.
    """
    given, found = np.asarray(truth) > 0.5, np.asarray(probabilities, np.float64)
    if not len(given):
        raise TaskError("no labelled examples to measure on.")
    guess = found >= threshold
    right, total = (given & guess).sum(0), given.sum(0) + guess.sum(0)
    occurs = total > 0
    ranked = [average_precision(given[:, c], found[:, c]) for c in np.flatnonzero(given.any(0))]
    return {
        "micro_f1": float(2 * right.sum() / max(int(total.sum()), 1)),
        "macro_f1": float(np.mean(2 * right[occurs] / total[occurs])) if occurs.any() else 0.0,
        "exact_match": float((given == guess).all(1).mean()),
        "mean_average_precision": float(np.mean(ranked)) if ranked else 0.0,
    }


def sets_at_most(truth: ArrayLike, probabilities: ArrayLike, at: Sequence[int]) -> dict[str, float]:
    """Precision and recall of the k most probable classes of all texts with labels together, for each k in `at`.

    As fastText's `test` (`fasttext.cc`, `meter.cc`), which leaves out texts without labels.
    """
    given, found = np.asarray(truth) > 0.5, np.asarray(probabilities, np.float64)
    kept = given.any(1)
    order = np.argsort(-found[kept], axis=1, kind="stable")
    hits = np.take_along_axis(given[kept], order, 1)
    made = {}
    for k in at:
        right = float(hits[:, :k].sum())
        made[f"precision_at_{k}"] = right / max(len(hits) * min(k, given.shape[1]), 1)
        made[f"recall_at_{k}"] = right / max(int(given.sum()), 1)
    return made


def average_precision(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """The mean of the precision at each rank with a right item; equal scores share one rank."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # where each run of equal scores ends
    precision, recalled = hits[last] / (last + 1), hits[last] / hits[-1]
    return float((np.diff(recalled, prepend=0.0) * precision).sum())
