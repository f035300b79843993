"""A linear model on the vectors that a frozen network gives to texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.tasks.linear.estimators import Weights
from cloze.tasks.linear.features import SparseRows
from cloze.tasks.linear.fit import TrainingExamples, folds_of, scores_of
from cloze.tasks.linear.linear_task import LinearTask, Outputs

Vectors = NDArray[np.float32]
_LEAST = 1e-6  # standard deviation


@dataclass(frozen=True)
class Scaling:
    """Brings vectors to a mean of zero and a mean square of 1 / width in each direction, so that rows have about length 1."""

    mean: Vectors
    deviation: Vectors

    @classmethod
    def of(cls, vectors: Vectors) -> Scaling:
        """The scaling that some vectors (N, W) need."""
        return cls(vectors.mean(0), vectors.std(0) + _LEAST)

    def rows(self, vectors: Vectors) -> SparseRows:
        """Vectors (N, W) as rows of W features."""
        count, width = vectors.shape
        scaled = (vectors - self.mean) / (self.deviation * np.sqrt(width))
        columns = np.tile(np.arange(width, dtype=np.int32), count)
        return SparseRows(columns, scaled.astype(np.float32).ravel(), np.arange(count + 1, dtype=np.int64) * width)


@dataclass(frozen=True)
class VectorModel:
    """A linear model of a task on scaled vectors."""

    task: LinearTask
    scaling: Scaling
    weights: Weights

    def outputs(self, vectors: Vectors, examples: Any) -> Outputs:
        """What it says of examples whose decisions have these vectors (D, W), in the form of `LinearModel.outputs`."""
        return self.task.outputs(scores_of(self.scaling.rows(vectors), self.weights), examples)


def fit_vectors(task: LinearTask, train: Any, vectors: Vectors, scaling: Scaling) -> tuple[VectorModel, Outputs]:
    """The model of training rows whose decisions have these vectors (D, W), and what it says of each row by weights that are
    learned without the fold of that row. The constant is the one with the lowest loss of these answers."""
    training = TrainingExamples.of(task, train, scaling.rows(vectors), vectors.shape[1])
    held: dict[float, Outputs] = {}
    for constant in task.estimator.unit_constants:
        scores = scores_of(training.rows, training.weights(constant))
        for inside, rest in folds_of(training):
            scores = np.where(inside[:, None], scores_of(training.rows, rest.weights(constant)), scores)
        held[constant] = training.outputs(scores)
    best = min(held, key=lambda constant: task.loss(train, held[constant]))
    return VectorModel(task, scaling, training.weights(best)), held[best]
