"""Fits the linear model of a task: features of the training rows, and the one constant, chosen on dev rows or by folds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.errors import TaskError
from cloze.tasks.linear.cutting import LONGEST, Cutter
from cloze.tasks.linear.estimators import TrainingRows, Weights
from cloze.tasks.linear.features import FeatureSpace, SparseRows
from cloze.tasks.linear.linear_task import LinearTask, Outputs
from cloze.tasks.linear.model import LinearFit, LinearModel
from cloze.tasks.task import selected

FEWEST = 20  # training rows with which a comparison says something
FEWEST_DEV = 50  # dev rows that choose the constant; with fewer, folds of the training rows do
FOLDS = 5
_SHARED = 10  # a text of more than one in so many examples does not make them alike
CHARACTERS, DEV_CHARACTERS = 4_000_000, 1_000_000  # that are read of the training rows and of the dev rows


def fit_linear(task: Any, train: Any, dev: Any | None = None, *, labels: tuple[str, ...] = ()) -> LinearModel:
    """The linear model of a task on its training rows; a `TaskError` where there can be none, a `MissingExtra` without
    scikit-learn.

    `labels` gives the order of probabilities; by default it is that of the sorted labels of the training rows.
    """
    began = perf_counter()
    linear = task.linear(labels)
    if linear is None:
        raise TaskError(f"{task.name} has none")
    if len(train) < FEWEST:
        raise TaskError(f"too few training rows for a comparison: {len(train)} of at least {FEWEST}")
    examples = draw(linear, train, CHARACTERS)
    linear = linear if labels else task.linear(linear.labels_of(examples))
    cutter = Cutter.of(linear.texts(examples))
    features, rows = FeatureSpace.learned(linear.blocks, linear.bags(examples, cutter))
    if not features.width:
        raise TaskError("the training rows are empty")
    training = TrainingExamples.of(linear, examples, rows, features.width)
    if len(np.unique(training.targets, axis=0)) < 2:
        raise TaskError("all training rows have the same answer")
    if dev is not None and len(dev) >= FEWEST_DEV:
        constant, weights = _by_dev(training, cutter, features, draw(linear, dev, DEV_CHARACTERS))
        chosen_on = "dev rows"
    else:
        constant, _ = by_folds(training)
        weights, chosen_on = training.weights(constant), f"{FOLDS} folds of the training rows"
    fit = LinearFit(constant, chosen_on, len(examples), len(train), features.width, round(perf_counter() - began, 2))
    return LinearModel(linear, cutter, features, weights, fit)


def fold_outputs(task: Any, train: Any, *, labels: tuple[str, ...] = ()) -> Outputs:
    """What linear models say of training rows that they have not seen: the outputs of each row by weights that are learned
    without its fold, with the constant that is best so."""
    linear = task.linear(labels)
    linear = linear if labels else task.linear(linear.labels_of(train))
    cutter = Cutter.of(linear.texts(train))
    features, rows = FeatureSpace.learned(linear.blocks, linear.bags(train, cutter))
    training = TrainingExamples.of(linear, train, rows, features.width)
    return training.outputs(by_folds(training)[1])


@dataclass(frozen=True)
class TrainingExamples:
    """Training examples with the features and the targets of their decisions."""

    linear: LinearTask
    examples: Any
    rows: SparseRows
    matrix: TrainingRows
    targets: NDArray[Any]

    @classmethod
    def of(cls, linear: LinearTask, examples: Any, rows: SparseRows, width: int) -> TrainingExamples:
        """Examples with answers, and the rows of `width` features of their decisions."""
        return cls(linear, examples, rows, TrainingRows.of(*rows, width), linear.targets(examples))

    def without(self, left: NDArray[np.bool_]) -> TrainingExamples:
        """The same without some decisions."""
        return replace(self, matrix=self.matrix.kept(~left), targets=self.targets[~left])

    def weights(self, constant: float) -> Weights:
        """The weights that are learned from the decisions."""
        estimator = self.linear.estimator
        learned = estimator.fit(self.matrix, self.targets, constant)
        # what is measured is what is stored
        return learned._replace(coefficients=learned.coefficients.astype(estimator.stored).astype(np.float32))

    def outputs(self, scores: NDArray[np.float32]) -> Outputs:
        """The outputs of the examples for the scores of all decisions."""
        return self.linear.outputs(scores, self.examples)


def _by_dev(training: TrainingExamples, cutter: Cutter, features: FeatureSpace, dev: Any) -> tuple[float, Weights]:
    """The constant that is best on dev examples, and its weights."""
    linear = training.linear
    rows = features.rows(linear.bags(dev, cutter))
    candidates = {constant: training.weights(constant) for constant in linear.estimator.constants}
    worth = {
        constant: worth_of(linear, dev, linear.outputs(scores_of(rows, weights), dev)) for constant, weights in candidates.items()
    }
    best = max(worth, key=lambda constant: worth[constant])
    return best, candidates[best]


def by_folds(training: TrainingExamples) -> tuple[float, NDArray[np.float32]]:
    """The constant that is best on training examples, each answered by weights that are learned without its fold, and the scores
    (D, K) of all decisions by these weights."""
    scores: dict[float, NDArray[np.float32]] = {}
    for inside, rest in folds_of(training):
        for constant in training.linear.estimator.constants:
            held = scores_of(training.rows, rest.weights(constant))
            scores[constant] = np.where(inside[:, None], held, scores.get(constant, held))
    worth = {
        constant: worth_of(training.linear, training.examples, training.outputs(held)) for constant, held in scores.items()
    }
    best = max(worth, key=lambda constant: worth[constant])
    return best, scores[best]


def folds_of(training: TrainingExamples) -> Iterator[tuple[NDArray[np.bool_], TrainingExamples]]:
    """Which decisions each fold has, (D,), and the training set without them. Decisions of an example are in one fold."""
    fold_of_example = fold_numbers(training.linear, training.examples)
    fold_of_decision = np.repeat(fold_of_example, training.linear.decisions(training.examples))
    for number in range(FOLDS):
        inside = fold_of_decision == number
        yield inside, training.without(inside)


def fold_numbers(linear: LinearTask, examples: Any) -> NDArray[np.int64]:
    """The fold of each example, (N,), the same for every model.

    Examples that share a text are in one fold: pairs of one premise, or twins with the same choices, would tell each other's
    answers. A text of more than a tenth of the examples, such as the choice "yes", is no sign of that.
    """
    groups = groups_of(linear, examples)
    folds, sizes = np.empty(len(groups), np.int64), np.zeros(FOLDS, np.int64)
    fold_of_group: dict[int, int] = {}
    counts = np.bincount(groups, minlength=len(groups))
    for number in rng.permutation(len(groups), 0, "folds"):
        group = int(groups[number])
        if group not in fold_of_group:
            fold_of_group[group] = int(sizes.argmin())
            sizes[fold_of_group[group]] += counts[group]
        folds[number] = fold_of_group[group]
    return folds


def groups_of(linear: LinearTask, examples: Any) -> NDArray[np.int64]:
    """The number of the first of the examples that each shares a text with, directly or through others, (N,); each its own
    where nearly all would be one group."""
    rows_of_text: dict[str, list[int]] = {}
    for number, texts in enumerate(linear.texts_apart(examples)):
        for text in texts:
            rows_of_text.setdefault(text, []).append(number)
    alone = np.arange(len(examples))
    groups = alone.copy()

    def first_of(number: int) -> int:
        while groups[number] != number:
            groups[number] = groups[groups[number]]
            number = int(groups[number])
        return number

    most = max(len(examples) // _SHARED, 2)
    for rows in rows_of_text.values():
        for number in rows[1:] if len(rows) <= most else ():
            first, second = sorted((first_of(rows[0]), first_of(number)))
            groups[second] = first
    groups = np.array([first_of(number) for number in range(len(alone))], np.int64)
    return groups if np.bincount(groups, minlength=1).max(initial=0) * FOLDS <= 2 * len(alone) else alone


def scores_of(rows: SparseRows, weights: Weights) -> NDArray[np.float32]:
    """The scores (D, K) of rows."""
    return rows.product(weights.coefficients) + weights.intercepts


def worth_of(linear: LinearTask, examples: Any, outputs: Outputs) -> tuple[float, ...]:
    """The metrics of outputs in their order, more being better."""
    metrics = linear.compute_metrics(linear.per_example(examples, outputs))
    return tuple(metrics[name] * (1 if more else -1) for name, more in linear.task.metrics.items() if name in metrics)


def draw(linear: LinearTask, examples: Any, characters: int) -> Any:
    """The examples, or as many of them as have so many characters and decisions, drawn at random, in their order."""
    order = rng.permutation(len(examples), 0, "drawn")
    lengths = np.array([min(len(text), LONGEST) for text in linear.texts(examples)], np.int64)
    within = (np.cumsum(lengths[order]) <= characters) & (np.cumsum(linear.decisions(examples)[order]) <= linear.most)
    most = max(int(within.sum()), FEWEST)
    return examples if most >= len(examples) else selected(examples, np.sort(order[:most]).tolist())
