"""How much two sentences have to do with each other, from a vector of each: Skip-thought's way with SICK."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from cloze.errors import TaskError
from cloze.tasks.measures.agreement import spearman
from cloze.uncompiled import eager

Vectors = NDArray[np.float32]


def pair_features(first: ArrayLike, second: ArrayLike) -> Vectors:
    """[|u - v|, u v] of two vectors (N, D) each: (N, 2D) (Tai et al., 2015, §4.2; Kiros et al., 2015, §3.1)."""
    u, v = np.asarray(first, np.float32), np.asarray(second, np.float32)
    if u.shape != v.shape:
        raise TaskError(f"vectors of pairs: {u.shape} and {v.shape}; expected as many of the same width for both sides.")
    return np.concatenate([np.abs(u - v), u * v], axis=-1)


def split_targets(scores: ArrayLike, levels: int = 5) -> NDArray[np.float64]:
    """Scores (N,) from 1 to `levels` as shares (N, levels) of the whole numbers around each: 3.6 is .4 of 3 and .6 of 4."""
    ratings = np.asarray(scores, np.float64)
    if ratings.size and not (ratings.min() >= 1 and ratings.max() <= levels):
        raise TaskError(f"scores from {ratings.min():g} to {ratings.max():g}: expected 1 to {levels}.")
    return np.maximum(0.0, 1 - np.abs(ratings[..., None] - np.arange(1, levels + 1)))


def expected_scores(shares: ArrayLike) -> NDArray[np.float64]:
    """The mean score (N,) of shares (N, levels)."""
    probabilities = np.asarray(shares, np.float64)
    return probabilities @ np.arange(1, probabilities.shape[-1] + 1)


class Relatedness:
    """A softmax over the whole scores on `pair_features`, trained on split targets; its expectation is the score.

    Full-batch L-BFGS with an L2 penalty `decay`, so that the fit is a function of its data alone. Differs: the authors train
    with Adam and stop by a development set.
    """

    def __init__(self, levels: int = 5, decay: float = 1e-4) -> None:
        self.levels, self.decay = levels, decay
        self._output: nn.Linear | None = None

    def fit(self, first: ArrayLike, second: ArrayLike, scores: ArrayLike) -> Relatedness:
        """Learn from vectors (N, D) of both sides and scores (N,) between 1 and `levels`; returns itself."""
        x = torch.from_numpy(pair_features(first, second)).double()
        targets = torch.from_numpy(split_targets(scores, self.levels))
        if len(x) != len(targets) or not len(x):
            raise TaskError(f"{len(x)} pairs and {len(targets)} scores; expected a score for each of one pair or more.")
        self._output = output = nn.Linear(x.shape[1], self.levels).double()
        nn.init.zeros_(output.weight)
        nn.init.zeros_(output.bias)
        optimizer = eager(torch.optim.LBFGS)(output.parameters(), max_iter=200, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(output(x), targets) + self.decay * output.weight.square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return self

    def predict(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
        """A score (N,) for each pair."""
        if self._output is None:
            raise TaskError("relatedness: nothing was learnt yet; call fit first.")
        with torch.no_grad():
            shares = self._output(torch.from_numpy(pair_features(first, second)).double()).softmax(-1)
        return expected_scores(shares.numpy())

    def measure(self, first: ArrayLike, second: ArrayLike, scores: ArrayLike) -> Mapping[str, float | None]:
        """`pearson`, `spearman` and `mse` of the predictions; a correlation is None if one side is constant."""
        predictions, truth = self.predict(first, second), np.asarray(scores, np.float64)
        varies = predictions.std() > 0 and truth.std() > 0
        return {
            "pearson": float(np.corrcoef(predictions, truth)[0, 1]) if varies else None,
            "spearman": spearman(predictions, truth), "mse": float(np.square(predictions - truth).mean()),
        }
