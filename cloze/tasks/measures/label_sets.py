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
    `mean_average_precision`; a mean of nothing is 0. Raises a `TaskError` if there are no examples.
    """
    positive, scores = np.asarray(truth) > 0.5, np.asarray(probabilities, np.float64)
    if not len(positive):
        raise TaskError("no labelled examples to measure on.")
    guess = scores >= threshold
    right, total = (positive & guess).sum(0), positive.sum(0) + guess.sum(0)
    occurs = total > 0
    ranked = [average_precision(positive[:, c], scores[:, c]) for c in np.flatnonzero(positive.any(0))]
    return {
        "micro_f1": float(2 * right.sum() / max(int(total.sum()), 1)),
        "macro_f1": float(np.mean(2 * right[occurs] / total[occurs])) if occurs.any() else 0.0,
        "exact_match": float((positive == guess).all(1).mean()),
        "mean_average_precision": float(np.mean(ranked)) if ranked else 0.0,
    }


def sets_at_most(truth: ArrayLike, probabilities: ArrayLike, at: Sequence[int]) -> dict[str, float]:
    """Precision and recall of the k most probable classes of all texts with labels together, for each k in `at`.

    As fastText's `test` (`fasttext.cc`, `meter.cc`), which leaves out texts without labels.
    """
    positive, scores = np.asarray(truth) > 0.5, np.asarray(probabilities, np.float64)
    labelled = positive.any(1)
    order = np.argsort(-scores[labelled], axis=1, kind="stable")
    hits = np.take_along_axis(positive[labelled], order, 1)
    metrics = {}
    for k in at:
        right = float(hits[:, :k].sum())
        metrics[f"precision_at_{k}"] = right / max(len(hits) * min(k, positive.shape[1]), 1)
        metrics[f"recall_at_{k}"] = right / max(int(positive.sum()), 1)
    return metrics


def average_precision(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    """The mean of the precision at each rank with a right item; equal scores share one rank."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(truth[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # where each run of equal scores ends
    precision, recalled = hits[last] / (last + 1), hits[last] / hits[-1]
    return float((np.diff(recalled, prepend=0.0) * precision).sum())
