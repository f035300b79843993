"""How well predicted numbers agree with given ones: Pearson's and Spearman's correlations, and the squared error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.errors import TaskError

#: By name, whether more is better.
AGREEMENT = {"pearson": True, "spearman": True, "mse": False}


def pearson(first: ArrayLike, second: ArrayLike) -> float | None:
    """The correlation of two rows of numbers; None for fewer than two or where one side never varies."""
    a, b = (_centred(side) for side in (first, second))
    if a is None or b is None:
        return None
    return float(np.clip((a * b).sum(), -1.0, 1.0))


def _centred(values: ArrayLike) -> np.ndarray | None:
    """Values without their mean and of length 1, None where they never vary; scaled first, so that no square overflows."""
    x = np.asarray(values, np.float64)
    if len(x) < 2 or x.min() == x.max():
        return None
    x = x / np.abs(x).max() - (x / np.abs(x).max()).mean()
    length = float(np.sqrt((x * x).sum()))
    return x / length if length else None


def spearman(first: ArrayLike, second: ArrayLike) -> float | None:
    """The correlation of ranks, equal values sharing their mean rank; None for fewer than two values, or if all are equal."""
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
    spread = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / spread if spread else None


def ranks(values: ArrayLike) -> NDArray[np.float64]:
    """The ranks from 1 of some values; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return mean_ranks


def agreement(truth: ArrayLike, guess: ArrayLike) -> dict[str, float]:
    """`pearson`, `spearman` and `mse`; a correlation that does not exist, because one side never varies, counts as 0.

    Raises a `TaskError` if there are no numbers, or if a prediction is not finite.
    """
    labels, predictions = np.asarray(truth, np.float64), np.asarray(guess, np.float64)
    if not len(labels):
        raise TaskError("no labelled examples to measure on.")
    wrong = int((~np.isfinite(predictions)).sum())
    if wrong:
        raise TaskError(
            f"{wrong:,} of {len(predictions):,} predicted numbers are not finite: the weights have diverged or are damaged.\n"
            "  Train again with a lower training.rate.peak."
        )
    return {
        "pearson": pearson(labels, predictions) or 0.0, "spearman": spearman(labels, predictions) or 0.0,
        "mse": float(np.square(predictions - labels).mean()),
    }


def undefined(truth: ArrayLike, guess: ArrayLike) -> tuple[str, ...]:
    """A remark where the correlations of `agreement` do not exist."""
    sides = {"the given numbers": truth, "the predicted numbers": guess}
    alike = [name for name, side in sides.items() if np.ptp(np.asarray(side, np.float64)) == 0]
    return (f"{' and '.join(alike)} are all equal, so there is no correlation: it is shown as 0.",) if alike else ()
