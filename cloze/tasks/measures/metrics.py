"""Accuracy, macro-F1 and the Matthews correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError

Labels = NDArray[np.int64]


def confusion(truth: Labels, guess: Labels, classes: int) -> Labels:
    """Counts (C, C): row = true class, column = predicted class."""
    return np.bincount(truth * classes + guess, minlength=classes * classes).reshape(classes, classes)


def accuracy(counts: Labels) -> float:
    """The share of examples on the diagonal."""
    return float(np.trace(counts) / counts.sum())


def macro_f1(counts: Labels) -> float:
    """The mean of the classes' F1. A class that is neither true nor predicted anywhere does not count."""
    right, true, guessed = np.diag(counts), counts.sum(1), counts.sum(0)
    occurs = true + guessed > 0
    return float(np.mean(2 * right[occurs] / (true + guessed)[occurs]))


def matthews(counts: Labels) -> float:
    """The correlation of truth and prediction for any number of classes; 0 where one of them never varies.

    Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient", 2004, eq. 8.
    """
    true, guessed, total = counts.sum(1).tolist(), counts.sum(0).tolist(), int(counts.sum())
    together = int(np.trace(counts)) * total - sum(t * g for t, g in zip(true, guessed, strict=True))
    spread = (total**2 - sum(t * t for t in true)) * (total**2 - sum(g * g for g in guessed))
    return together / sqrt(spread) if spread else 0.0


METRICS = {"accuracy": accuracy, "macro_f1": macro_f1, "matthews": matthews}


def positive_f1(counts: Labels) -> float:
    """The F1 of the second of two classes, as MRPC and QQP are reported; 0 if it is neither true nor predicted."""
    right, true, guessed = int(counts[1, 1]), int(counts[1].sum()), int(counts[:, 1].sum())
    return 2 * right / (true + guessed) if true + guessed else 0.0


def measure(truth: Labels, guess: Labels, classes: int) -> dict[str, float]:
    """Every metric by name; of two classes also `f1`, that of the second one."""
    if not len(truth):
        raise TaskError("no labelled examples to measure on.")
    counts = confusion(truth, guess, classes)
    metrics = {name: function(counts) for name, function in METRICS.items()}
    return {**metrics, "f1": positive_f1(counts)} if classes == 2 else metrics


def at_most(rank: NDArray[np.int64], at: Sequence[int], classes: int) -> dict[str, float]:
    """Precision and recall of the k most probable classes, for each k in `at`, from the rank (N,) of the right one, 0 the first.

    As fastText's `test` (`meter.cc`): right answers by all answers that are given, and by all that are right.
    """
    metrics: dict[str, float] = {}
    for k in at:
        right = float((rank < k).mean())
        metrics |= {f"precision_at_{k}": right / min(k, classes), f"recall_at_{k}": right}
    return metrics


def ranks_of(probabilities: NDArray[np.floating], truth: Labels) -> Labels:
    """How many classes are more probable than the true one, (N,); of equal ones those with a smaller number are."""
    true_probabilities = np.take_along_axis(probabilities, truth[:, None], 1)
    earlier = np.arange(probabilities.shape[1]) < truth[:, None]
    return np.asarray(((probabilities > true_probabilities) | ((probabilities == true_probabilities) & earlier)).sum(1), np.int64)


def ks_of(at: Sequence[int]) -> tuple[int, ...]:
    """The numbers of most probable classes to measure; a `TaskError` for one below 1."""
    for k in at:
        if k < 1:
            raise TaskError(f"--at {','.join(map(str, at))}: expected whole numbers from 1 on, such as 1,5.")
    return tuple(dict.fromkeys(at))


def require_share(threshold: float | None) -> None:
    """A `TaskError` for a threshold that is no probability between 0 and 1."""
    if threshold is not None and not 0 < threshold < 1:
        raise TaskError(f"--threshold {threshold:g}: expected a probability between 0 and 1, such as 0.5.")


def spread(results: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation (of a sample, n - 1) of each metric over several runs."""
    summary = {}
    for name in results[0]:
        values = np.array([result[name] for result in results])
        summary[name] = {"mean": float(values.mean()), "deviation": float(values.std(ddof=1)) if len(values) > 1 else 0.0}
    return summary
