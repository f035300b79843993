"""What learns linear weights: scikit-learn's logistic regression and ridge regression, and what their scores mean."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import MissingExtra

Array = NDArray[Any]
_NEVER = -1e4  # the score of a class that no training row has: its probability is 0
_STEPS = 100  # of the optimizer
_FEW, _FEW_OF_ONE = 2000, 500  # rows that are multiplied by each other, at most, and if there is one score
_LEAST = 1e-6  # probability of what a model holds for impossible
_APART = 1e-6  # added to the square of each row, because rows may be equal


class Weights(NamedTuple):
    """Coefficients (V, K) and intercepts (K,)."""

    coefficients: NDArray[np.float32]
    intercepts: NDArray[np.float32]


@dataclass(frozen=True)
class TrainingRows:
    """Rows of training (N, V), a sparse matrix of scipy."""

    matrix: Any

    @classmethod
    def of(cls, columns: Array, values: Array, starts: Array, width: int) -> TrainingRows:
        """Sparse rows as scipy has them, which comes with scikit-learn."""
        _package()
        from scipy.sparse import csr_matrix

        return cls(csr_matrix((values, columns, starts), shape=(len(starts) - 1, width)))

    def kept(self, inside: NDArray[np.bool_]) -> TrainingRows:
        """Some of the rows."""
        return TrainingRows(self.matrix[inside])

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.matrix.shape[1])

    def logistic(self, targets: Array, constant: float) -> Weights:
        """Logistic regression: a score for each class, of two classes only that of the second."""
        model = _package().linear_model.LogisticRegression(C=constant, max_iter=_STEPS)
        factor = self._factor if len(targets) <= _FEW_OF_ONE or len(np.unique(targets)) > 2 else None
        with warnings.catch_warnings(), _one_thread():
            warnings.simplefilter("ignore")  # that it has not converged: what counts is the score on the dev rows
            model.fit(self.matrix if factor is None else factor, targets)
        coefficients = model.coef_.T
        if factor is not None:
            from scipy.linalg import solve_triangular

            coefficients = self.matrix.T @ solve_triangular(factor, coefficients, lower=True, trans="T")
        return Weights(coefficients, model.intercept_)

    @cached_property
    def _factor(self) -> Array | None:
        """L (N, N) with the same products of rows, L Lᵀ = X Xᵀ; None where it would be no smaller than the rows.

        The best weights are a sum of rows (the representer theorem), so weights for the N columns of L are as good as for the V
        features, and a hundred rows need a hundred of them.
        """
        count = int(self.matrix.shape[0])
        if count > _FEW or self.width < 2 * count:
            return None
        rows = self.matrix.astype(np.float64)  # in float32, equal rows would have products that are not quite equal
        products = (rows @ rows.T).toarray()
        products[np.diag_indices(count)] += _APART
        return np.linalg.cholesky(products)


class Estimator(ABC):
    """A kind of linear model. Larger `constants` of a classifier, and smaller ones of a regression, regularise less."""

    constants: ClassVar[tuple[float, ...]]
    sharpens: ClassVar[bool] = True  # outputs are probabilities, which may be too sure
    stored: ClassVar[type[np.floating[Any]]] = np.float16  # the type in which coefficients are kept

    @property
    def unit_constants(self) -> tuple[float, ...]:
        """The constants for rows of length 1."""
        return self.constants

    @abstractmethod
    def fit(self, rows: TrainingRows, targets: Array, constant: float) -> Weights:
        """The weights for rows and their targets."""

    def outputs(self, scores: Array) -> Array:
        """Probabilities or numbers for the scores (N, K) of rows."""
        return scores

    @abstractmethod
    def pooled(self, first: Array, second: Array, share: float, sharpness: float) -> Array:
        """Outputs of two models for the same rows as one; `share` is that of the second."""

    @abstractmethod
    def loss(self, outputs: Array, targets: Array) -> float:
        """The mean negative log-likelihood of targets, or the mean squared error."""


class Classes(Estimator):
    """One of several classes: multinomial logistic regression. Targets are the numbers of `classes` classes."""

    constants = (1.0, 10.0, 100.0)

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def fit(self, rows: TrainingRows, targets: Array, constant: float) -> Weights:
        seen = np.unique(targets)
        coefficients = np.zeros((rows.width, self.classes), np.float32)
        intercepts = np.full(self.classes, _NEVER, np.float32)
        intercepts[seen] = 0.0
        if len(seen) == 1:  # as one fold may have it
            return Weights(coefficients, intercepts)
        learned = rows.logistic(targets, constant)
        if len(seen) == 2:  # one score, that of the second class
            coefficients[:, seen[1]], intercepts[seen] = learned.coefficients[:, 0], (0.0, learned.intercepts[0])
        else:
            coefficients[:, seen], intercepts[seen] = learned
        return Weights(coefficients, intercepts)

    def outputs(self, scores: Array) -> Array:
        shares = np.exp(scores - scores.max(1, keepdims=True))
        return np.asarray(shares / shares.sum(1, keepdims=True), np.float32)

    def pooled(self, first: Array, second: Array, share: float, sharpness: float) -> Array:
        logs = (1.0 - share) * _log(first) + share * _log(second)
        return Classes.outputs(self, sharpness * logs)

    def loss(self, outputs: Array, targets: Array) -> float:
        mask = targets >= 0
        return float(-_log(outputs[mask, targets[mask]]).mean()) if mask.any() else 0.0


class Sets(Estimator):
    """Any of several classes: logistic regression for each. Targets are (N, C) of 0 and 1."""

    constants = Classes.constants

    def fit(self, rows: TrainingRows, targets: Array, constant: float) -> Weights:
        coefficients = np.zeros((rows.width, targets.shape[1]), np.float32)
        intercepts = np.full(targets.shape[1], _NEVER, np.float32)
        for number, members in enumerate(targets.T > 0.5):
            if members.all():
                intercepts[number] = -_NEVER
            elif members.any():
                learned = rows.logistic(members, constant)
                coefficients[:, number], intercepts[number] = learned.coefficients[:, 0], learned.intercepts[0]
        return Weights(coefficients, intercepts)

    def outputs(self, scores: Array) -> Array:
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * scores)), np.float32)

    def pooled(self, first: Array, second: Array, share: float, sharpness: float) -> Array:
        odds = [_log(probabilities) - _log(1.0 - probabilities) for probabilities in (first, second)]
        return Sets.outputs(self, sharpness * ((1.0 - share) * odds[0] + share * odds[1]))

    def loss(self, outputs: Array, targets: Array) -> float:
        return float(-(targets * _log(outputs) + (1.0 - targets) * _log(1.0 - outputs)).mean())


class GroupChoice(Sets):
    """Whether a row is the chosen one of its group: logistic regression with one score. Targets are (N,) of 0 and 1."""

    def fit(self, rows: TrainingRows, targets: Array, constant: float) -> Weights:
        return super().fit(rows, targets[:, None], constant)

    def outputs(self, scores: Array) -> Array:
        return scores

    def pooled(self, first: Array, second: Array, share: float, sharpness: float) -> Array:
        """Of the probabilities of the choices of each group, a row each."""
        return Classes(first.shape[1]).pooled(first, second, share, sharpness)

    def loss(self, outputs: Array, targets: Array) -> float:
        """Of the chosen rows of all groups."""
        return float(-_log(outputs[targets > 0.5]).mean())


class Numbers(Estimator):
    """A number: ridge regression. Targets are (N,)."""

    constants = (0.3, 1.0, 3.0)
    sharpens = False
    stored = np.float32  # coefficients have the scale of the targets, which may be too large or too small for float16

    def fit(self, rows: TrainingRows, targets: Array, constant: float) -> Weights:
        ridge = _package().linear_model.Ridge(alpha=constant, solver="sparse_cg", tol=1e-5)
        fitted = ridge.fit(rows.matrix.astype(np.float64), np.asarray(targets, np.float64))
        return Weights(fitted.coef_[:, None].astype(np.float32), np.array([fitted.intercept_], np.float32))

    def pooled(self, first: Array, second: Array, share: float, sharpness: float) -> Array:
        return np.asarray((1.0 - share) * first + share * second)

    def loss(self, outputs: Array, targets: Array) -> float:
        return float(((outputs - targets) ** 2).mean())


def _log(probabilities: Array) -> Array:
    return np.asarray(np.log(np.maximum(probabilities, _LEAST)))


def _package() -> Any:
    """scikit-learn, which takes a second to import; a `MissingExtra` where it is not installed."""
    try:
        import sklearn.linear_model
    except ImportError:
        raise MissingExtra("scikit-learn", "baselines", "a linear model on n-grams to compare with") from None
    return sklearn


def _one_thread() -> AbstractContextManager[Any]:
    """One thread for sums that are too small for several, which would wait for each other on a busy machine."""
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[Any] = threadpool_limits(limits=1)
    return limited
