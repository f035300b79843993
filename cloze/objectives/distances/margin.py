"""A fact is nearer than a wrong triple made from it, by a margin: the loss of TransE."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.objectives.objective import Loss, Objective, at_least_float32
from cloze.registry import register


@register("objective", "margin")
class Margin(Objective):
    """Σ max(0, by + d(fact) - d(wrong)) over the wrong triples of each fact (Bordes et al., 2013, eq. 1).

    Reads `distance` (R,), takes `owner` (R,): the first row of each owner is the fact, the others are wrong. Every wrong triple
    counts 1, so the loss is divided by their number as in OpenKE, unless `training.divide` says otherwise (the paper sums).
    Metric `correct`: the wrong triples that are farther than their fact. No parameters of its own.
    """

    likelihood = False

    def __init__(self, *, by: Positive = 1.0) -> None:
        super().__init__()
        self.by = by
        self.reads = ("distance",)
        self.takes = frozenset({"owner"})
        self.head = nn.Identity()

    def count(self, batch: Batch) -> Tensor:
        """The wrong triples."""
        first = _first(batch["owner"])
        return torch.tensor(float(len(first) - int(first.sum())))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The distances, (R,)."""
        return states[self.reads[0]]

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric."""
        distance, first = at_least_float32(scores), _first(batch["owner"])
        fact = distance[torch.where(first, torch.arange(len(first), device=first.device), 0).cummax(0).values]
        losses = torch.where(first, 0.0, (self.by + fact - distance).clamp(min=0))
        return Loss(losses.sum(), {"correct": (distance > fact).sum(dtype=distance.dtype)})  # a fact is not farther than itself


def _first(owner: Tensor) -> Tensor:
    """Whether each row (R,) is the first of its owner; the rows of an owner follow one another."""
    return torch.cat([owner.new_ones(min(len(owner), 1), dtype=torch.bool), owner[1:] != owner[:-1]])
