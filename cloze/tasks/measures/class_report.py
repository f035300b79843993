"""What single metrics hide about a classifier: its figures by class, its confusions, its calibration, and two classes ranked.

All values are those of scikit-learn's functions of the same names; a share of nothing is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloze.tasks.measures.agreement import ranks
from cloze.tasks.measures.label_sets import average_precision
from cloze.tasks.measures.metrics import Labels, confusion

Row = Mapping[str, Any]
Floats = NDArray[np.float64]
BINS = 10  # of the confidence


@dataclass(frozen=True)
class ClassCounts:
    """For each class (C,): how often it is right, how often it is given, and how often it is both."""

    true: Labels
    given: Labels
    right: Labels

    @classmethod
    def of_confusion(cls, counts: Labels) -> ClassCounts:
        """The counts of a confusion matrix (C, C)."""
        return cls(counts.sum(1), counts.sum(0), np.diag(counts))

    @classmethod
    def of_sets(cls, truth: NDArray[np.bool_], guess: NDArray[np.bool_]) -> ClassCounts:
        """The counts of sets of classes (N, C)."""
        return cls(*(np.asarray(sets.sum(0), np.int64) for sets in (truth, guess, truth & guess)))

    @property
    def occurs(self) -> NDArray[np.bool_]:
        """Which classes are right or given anywhere."""
        return np.asarray(self.true + self.given > 0)

    @property
    def precision(self) -> Floats:
        """The share of the given ones that are right, (C,)."""
        return _shares(self.right, self.given)

    @property
    def recall(self) -> Floats:
        """The share of the right ones that are given, (C,)."""
        return _shares(self.right, self.true)

    @property
    def f1(self) -> Floats:
        """The harmonic mean of precision and recall, (C,)."""
        return _shares(2 * self.right, self.true + self.given)

    def rows(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Precision, recall, F1 and support (how often a class is right) of every class that occurs."""
        return [
            _row(names[number], (self.precision[number], self.recall[number], self.f1[number]), self.true[number])
            for number in np.flatnonzero(self.occurs).tolist()
        ]

    def averages(self) -> list[dict[str, Any]]:
        """The averages over all answers (micro), over the classes that occur (macro), and over these by support (weighted)."""
        occurs, total = self.occurs, int(self.true.sum())
        columns = [values[occurs] for values in (self.precision, self.recall, self.f1)]
        micro = ClassCounts(*(counts.sum(keepdims=True) for counts in (self.true, self.given, self.right)))
        weights = _shares(self.true[occurs], np.full(int(occurs.sum()), total))
        return [
            _row("micro avg", (micro.precision[0], micro.recall[0], micro.f1[0]), total),
            _row("macro avg", [float(column.mean()) if len(column) else 0.0 for column in columns], total),
            _row("weighted avg", [float(column @ weights) for column in columns], total),
        ]


def samples_average(truth: NDArray[np.bool_], guess: NDArray[np.bool_]) -> dict[str, Any]:
    """The average over rows of the figures of their sets (N, C)."""
    by_row = ClassCounts.of_sets(truth.T, guess.T)
    return _row("samples avg", [values.mean() for values in (by_row.precision, by_row.recall, by_row.f1)], truth.sum())


def _row(name: str, figures: Sequence[float], support: Any) -> dict[str, Any]:
    precision, recall, f1 = map(float, figures)
    return {"label": name, "precision": precision, "recall": recall, "f1": f1, "support": int(support)}


def _shares(part: ArrayLike, total: ArrayLike) -> Floats:
    part, total = np.asarray(part, np.float64), np.asarray(total, np.float64)
    return np.divide(part, total, out=np.zeros_like(part), where=total > 0)


@dataclass(frozen=True)
class Confusion:
    """How often each class (row) was given each class (column): `counts` (C, C), in the order of `labels`."""

    labels: tuple[str, ...]
    counts: Labels = field(compare=False)

    @classmethod
    def of(cls, names: Sequence[str], counts: Labels) -> Confusion:
        """The matrix of the classes that occur."""
        occurs = np.flatnonzero(ClassCounts.of_confusion(counts).occurs)
        return cls(tuple(names[number] for number in occurs.tolist()), counts[np.ix_(occurs, occurs)])

    def most_frequent(self, most: int) -> list[tuple[str, str, int]]:
        """The most frequent mistakes: the right class, the one given in its place, and how often."""
        mistakes = self.counts * (1 - np.eye(len(self.labels), dtype=np.int64))
        order = np.argsort(-mistakes, axis=None, kind="stable")[:most].tolist()
        places = [divmod(index, len(self.labels)) for index in order]
        return [
            (self.labels[true], self.labels[guess], int(mistakes[true, guess])) for true, guess in places if mistakes[true, guess]
        ]

    def record(self) -> dict[str, dict[str, int]]:
        """The counts above 0 as a JSON object: by the right class, then by the given one."""
        return {
            label: {self.labels[number]: int(row[number]) for number in np.flatnonzero(row).tolist()}
            for label, row in zip(self.labels, self.counts, strict=True)
        }


@dataclass(frozen=True)
class Calibration:
    """How well probabilities tell how often an answer is right.

    Attributes:
        expected_error: The mean distance of confidence from accuracy over the bins, weighted by their examples (ECE; Guo et al.,
            2017, §2).
        brier: The mean squared distance of the probabilities from 1 for the right class and 0 for the others, summed over the
            classes; of two classes only one counts, as in scikit-learn.
        bins: For each tenth of the confidence with examples: its bounds, how many examples, their mean confidence, their
            accuracy.
    """

    expected_error: float
    brier: float
    bins: Sequence[Row]

    @classmethod
    def of(cls, truth: Labels, guess: Labels, probabilities: Floats) -> Calibration:
        """The calibration of the probabilities (N, C) of classes, with the right class and the given one of every row (N,)."""
        numbers = np.arange(len(truth))
        confidence, right = probabilities[numbers, guess], truth == guess
        edges = np.linspace(0.0, 1.0, BINS + 1)
        bin_numbers = np.searchsorted(edges[1:-1], confidence)
        bins = []
        for number in np.unique(bin_numbers).tolist():
            inside = bin_numbers == number
            bins.append({
                "from": round(float(edges[number]), 2), "to": round(float(edges[number + 1]), 2), "examples": int(inside.sum()),
                "confidence": float(confidence[inside].mean()), "accuracy": float(right[inside].mean()),
            })
        error = sum(interval["examples"] * abs(interval["confidence"] - interval["accuracy"]) for interval in bins) / len(truth)
        distances = probabilities.copy()
        distances[numbers, truth] -= 1.0
        squares = (distances**2).sum(1) / (2 if probabilities.shape[1] == 2 else 1)
        return cls(float(error), float(squares.mean()), bins)


@dataclass(frozen=True)
class BinaryRanking:
    """How well the probability of one of two classes, `positive`, ranks the rows.

    `threshold` is the probability from which on `positive` has to be given so that its F1 is the highest on these rows, `f1`.
    """

    positive: str
    roc_auc: float
    average_precision: float
    threshold: float
    f1: float

    @classmethod
    def of(cls, truth: NDArray[np.bool_], scores: Floats, positive: str) -> BinaryRanking | None:
        """The ranking of rows (N,); None where only one class is right anywhere."""
        if truth.all() or not truth.any():
            return None
        threshold, f1 = best_threshold(truth, scores)
        return cls(positive, roc_auc(truth, scores), average_precision(truth, scores), threshold, f1)


def roc_auc(truth: NDArray[np.bool_], scores: Floats) -> float:
    """The share of pairs of a right and a wrong row in which the right one has the higher score; equal ones count half."""
    right, wrong = int(truth.sum()), int((~truth).sum())
    return float((ranks(scores)[truth].sum() - right * (right + 1) / 2) / (right * wrong))


def best_threshold(truth: NDArray[np.bool_], scores: Floats) -> tuple[float, float]:
    """The score from which on a row counts as right so that F1 is highest, and that F1; of equal ones the highest score.

    It is the shortest decimal between the lowest score that counts and the next lower one.
    """
    order = np.argsort(-scores, kind="stable")
    values = np.unique(scores)[::-1]
    total = np.searchsorted(-scores[order], -values, side="right")  # rows with this score or a higher one
    hits = np.cumsum(truth[order])[total - 1]
    f1 = 2 * hits / (total + truth.sum())
    best = int(f1.argmax())
    lower = float(values[best + 1]) if best + 1 < len(values) else 0.0
    return shortest_between(lower, float(values[best])), float(f1[best])


def shortest_between(low: float, high: float) -> float:
    """The decimal with the fewest digits between `low` and `high`, close to their middle; `high` if there is none."""
    middle = (low + high) / 2
    return next((rounded for digits in range(1, 17) if low < (rounded := round(middle, digits)) < high), high)


def class_figures(truth: Labels, guess: Labels, probabilities: ArrayLike, names: Sequence[str]) -> dict[str, Any]:
    """What an `Evaluation` holds about classes: fields by name, from the right class and the given one (N,) and the probabilities
    (N, C) of all."""
    shares = np.asarray(probabilities, np.float64)
    counts = confusion(truth, guess, len(names))
    by_class = ClassCounts.of_confusion(counts)
    return {
        "by_class": by_class.rows(names), "averages": by_class.averages(), "confusion": Confusion.of(names, counts),
        "calibration": Calibration.of(truth, guess, shares),
        "ranking": BinaryRanking.of(truth == 1, shares[:, 1], names[1]) if len(names) == 2 else None,
    }
