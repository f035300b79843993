"""A linear model that also learns from texts without labels: naive Bayes by expectation maximisation, mixed with regression.

Words that occur together in many texts tell a class even if no labelled row has them (Nigam et al., 2000, "Text Classification
from Labeled and Unlabeled Documents using EM"). Naive Bayes and logistic regression are both linear in the same features, so
their mixture is one linear model, with the files and the speed of one.

Differs: the features are those of the linear model, rows of length 1 by TF-IDF, and scores are multiplied by a sharpness; plain
counts of words make naive Bayes so sure that its answers never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, product
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Classes, TrainingRows, Weights
from cloze.tasks.linear.features import FeatureSpace, SparseRows
from cloze.tasks.linear.fit import CHARACTERS, FOLDS, TrainingExamples, by_folds, draw, folds_of
from cloze.tasks.linear.linear_task import LinearTask, Outputs
from cloze.tasks.linear.model import LinearFit, LinearModel
from cloze.tasks.linear.shares import choose_shares

WEIGHTS = (0.0, 0.1, 1.0)  # what a text without a label weighs, a labelled row being 1
SHARPNESS = (2.0, 4.0, 10.0)  # of the scores of naive Bayes
SMOOTHING = (0.01, 0.05)  # added to the count of every feature
SCALES = (0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)  # of its scores afterwards; small ones where it is often wrong
STEPS = 10  # of expectation maximisation
SETTLED = 1e-3  # the mean change of probabilities after which there are no further steps
TEXTS = 8_000  # that are read at most
NUMBERS = 20_000_000  # entries of rows times classes that are read at most


class CrossFittedModel(NamedTuple):
    """A linear model, and what it says of its training rows by weights that are learned without their fold."""

    linear: LinearModel
    held: Outputs


def learns_from_texts(linear: LinearTask | None) -> bool:
    """Whether texts without labels can be learned from: the task is one of several classes of a text."""
    return linear is not None and isinstance(linear.estimator, Classes) and ("words", "tfidf") in linear.blocks


def fit_with_texts(task: Any, train: Any, texts: Any, *, labels: tuple[str, ...] = ()) -> CrossFittedModel:
    """The linear model of a task on its training rows and on further examples without labels, `texts`.

    What a text weighs, the sharpness of naive Bayes and the share of naive Bayes are chosen by the loss of training rows that are
    left out in turn. Raises a `TaskError` where nothing can be learned so.
    """
    began = perf_counter()
    linear = task.linear(labels)
    if not learns_from_texts(linear):
        raise TaskError(f"{task.name}: learns nothing from texts without labels; it is not about one of several classes")
    linear = linear if labels else task.linear(linear.labels_of(train))
    texts = draw(linear, texts, CHARACTERS)
    cutter = Cutter.of(linear.texts(train))
    features, rows = FeatureSpace.learned(linear.blocks, chain(linear.bags(train, cutter), linear.bags(texts, cutter)))
    training = TrainingExamples.of(linear, train, _part(rows, 0, len(train)), features.width)
    columns = _columns(features, rows)
    text_matrix = TrainingRows.of(*rows, features.width).matrix[len(train) :, columns].tocsr()
    text_matrix = text_matrix[: _enough(text_matrix.indptr, NUMBERS // len(linear.labels))]
    constant, alone = by_folds(training)
    second, held = _NaiveBayes(training, text_matrix, columns).best()
    targets = training.targets
    share, sharpness = choose_shares(
        lambda share, sharp: linear.estimator.loss(linear.estimator.outputs(sharp * _mixed(alone, held, share)), targets),
        len(targets), sharpens=True,
    )
    first = training.weights(constant)
    mixed = (sharpness * _mixed(array, other, share) for array, other in zip(first, second, strict=True))
    coefficients, intercepts = mixed
    weights = Weights(coefficients.astype(np.float16).astype(np.float32), intercepts.astype(np.float32))
    chosen_on = f"{FOLDS} folds of the training rows"
    fit = LinearFit(
        constant, chosen_on, len(train), len(train), features.width, round(perf_counter() - began, 2), text_matrix.shape[0],
        round(share, 2),
    )
    return CrossFittedModel(
        LinearModel(linear, cutter, features, weights, fit), training.outputs(sharpness * _mixed(alone, held, share))
    )


def _mixed(first: Any, second: Any, share: float) -> Any:
    return (1.0 - share) * first + share * second


def _part(rows: SparseRows, begin: int, end: int) -> SparseRows:
    """The rows from `begin` to `end`."""
    first, last = rows.starts[begin], rows.starts[end]
    return SparseRows(rows.columns[first:last], rows.values[first:last], rows.starts[begin : end + 1] - first)


def _columns(features: FeatureSpace, rows: SparseRows) -> NDArray[np.int64]:
    """The features of the first kind that there are, words where the script has them, that occur in two rows or more."""
    width = next(len(block.numbers) for block in features.blocks if block.numbers)  # what is before them is empty
    return np.flatnonzero(np.bincount(rows.columns, minlength=features.width)[:width] > 1)


def _enough(starts: NDArray[Any], entries: int) -> int:
    """How many rows have at most so many entries, and are at most `TEXTS`."""
    return max(min(int(np.searchsorted(starts, entries, side="right")) - 1, TEXTS), 0)


class _Settings(NamedTuple):
    """What a text without a label weighs, a labelled row being 1; what scores are multiplied by; what is added to each count."""

    weight: float
    sharpness: float
    smoothing: float


@dataclass(frozen=True)
class _NaiveBayes:
    """Naive Bayes on the features `columns` of labelled rows, and of texts (M, V) without labels."""

    training: TrainingExamples
    texts: Any
    columns: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.training.linear.labels)

    def best(self) -> tuple[Weights, NDArray[np.float32]]:
        """The weights with the settings that are best on training rows that are left out in turn, and the scores of these rows.
        Both are multiplied so that the probabilities of these rows are neither too sure nor too unsure."""
        estimator, targets = self.training.linear.estimator, self.training.targets
        rows = self.training.matrix.matrix[:, self.columns].tocsr()
        folds = [inside for inside, _ in folds_of(self.training)]
        trials: list[tuple[float, float, _Settings, NDArray[np.float32]]] = []
        for settings in _SETTINGS:
            scores = np.zeros((len(targets), self.classes), np.float32)
            for inside in folds:
                weights = self._learned(rows[~inside], targets[~inside], settings)
                scores[inside] = rows[inside] @ weights.coefficients + weights.intercepts
            trials += [(estimator.loss(estimator.outputs(scale * scores), targets), scale, settings, scores) for scale in SCALES]
        _, scale, settings, scores = min(trials, key=lambda trial: trial[0])
        weights = self._learned(rows, targets, settings)
        coefficients = np.zeros((self.training.matrix.width, self.classes), np.float32)
        coefficients[self.columns] = scale * weights.coefficients
        return Weights(coefficients, scale * weights.intercepts), scale * scores

    def _learned(self, rows: Any, targets: NDArray[Any], settings: _Settings) -> Weights:
        """The weights after expectation maximisation that begins at those of the labelled rows alone."""
        answers = np.eye(self.classes, dtype=np.float32)[targets]
        counts, sizes = rows.T @ answers, answers.sum(0)
        weights = _most_probable(counts, sizes, settings)
        guesses = np.zeros((0, self.classes), np.float32)
        for _ in range(STEPS if settings.weight and self.texts.shape[0] else 0):
            before = guesses
            guesses = Classes(self.classes).outputs(self.texts @ weights.coefficients + weights.intercepts)
            if len(before) and np.abs(guesses - before).mean() < SETTLED:
                break
            more = settings.weight * (self.texts.T @ guesses)
            weights = _most_probable(counts + more, sizes + settings.weight * guesses.sum(0), settings)
        return weights


def _most_probable(counts: NDArray[Any], sizes: NDArray[Any], settings: _Settings) -> Weights:
    """The weights that make features (V, K) and classes (K,) of these counts most probable."""
    smooth = counts + settings.smoothing
    logs = np.log(smooth / smooth.sum(0))
    logs -= logs.mean(1, keepdims=True)  # what all classes share changes nothing, and would round badly
    priors = np.log((sizes + 1.0) / (sizes + 1.0).sum())
    return Weights((settings.sharpness * logs).astype(np.float32), priors.astype(np.float32))


_SETTINGS = [_Settings(*values) for values in product(WEIGHTS, SHARPNESS, SMOOTHING)]
