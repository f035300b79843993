"""Predict how often two words occur together: GloVe's weighted least squares over the cells of a matrix."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.errors import RecipeError
from cloze.objectives.objective import Loss, Objective
from cloze.registry import register


@register("objective", "cooccurrence_regression")
class CooccurrenceRegression(Objective):
    """½ f(x) (a - ln x)² for every cell of count x and association a (Pennington et al., 2014, §3), summed over the cells.

    f(x) = (x / `limit`)^`power` below `limit`, else 1. The ½ is that of the authors' code, whose gradient by w_i is then
    f · diff · c_j. Reads `association` (P,), takes `cell` and `cell_count`. No parameters of its own.
    """

    vectors_from = "cells"

    def __init__(self, *, limit: Positive = 100.0, power: float = 0.75) -> None:
        super().__init__()
        if not limit > 0:
            raise RecipeError(f"cooccurrence_regression: limit {limit}; expected a count above 0, the paper has 100.")
        self.limit = limit
        self.power = power
        self.reads = ("association",)
        self.takes = frozenset({"cell", "cell_count"})
        self.head = nn.Identity()

    def count(self, batch: Batch) -> Tensor:
        """The number of cells."""
        return torch.tensor(float(batch["cell_count"].shape[0]))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The associations, (P,)."""
        return states[self.reads[0]]

    def weigh(self, counts: Tensor) -> Tensor:
        """f(x) of counts."""
        return (counts / self.limit).clamp(max=1.0).pow(self.power)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss. Metric `error`: the sum of squared differences, without weights."""
        estimates = scores if scores.dtype == torch.float64 else scores.float()
        counts = batch["cell_count"].to(estimates.dtype)
        squares = (estimates - counts.log()).square()
        return Loss((0.5 * self.weigh(counts) * squares).sum(), {"error": squares.detach().sum()})
