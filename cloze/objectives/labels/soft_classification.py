"""Predict the class probabilities that another model assigns to a text (soft labels)."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count, Positive
from cloze.networks.clock import Clock
from cloze.objectives.objective import Kind, Loss, at_least_float32
from cloze.objectives.summary import Read, SummaryValues, summary_head
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register

SoftLoss = Literal["kl_divergence", "squared", "scores"]
_LEAST = 1e-30  # a probability of 0 has no logarithm


class SoftClassification(SummaryValues):
    """The distance of a text's scores from the probabilities `values/<set>` (M, C), summed over the texts.

    `kl_divergence`: of the softmax from the probabilities, both at the `temperature` T, times T²: its gradient is that of the
    cross-entropy, and it is 0 where both agree. `scores`: the same of values that need not sum to 1, such as how right each of
    several answers is, Σ v (log v - log softmax) (uclanlp/visualbert, `TrainVisualBERTObjective`). `squared`: the mean squared
    difference of scores and log-probabilities, each minus its mean, which the softmax does not see. Metric `correct`: the texts
    whose most probable class is the same.
    """

    kind: Kind | None = "relation_prediction"

    def __init__(self, head: nn.Module, *, set: str, reading: Read, loss: SoftLoss, temperature: float) -> None:
        super().__init__(head, set=set, reading=reading)
        self.divergence, self.temperature = loss, temperature

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; zero targets give a zero connected to the parameters."""
        logits = at_least_float32(scores)
        probabilities = self.target_values(batch).to(logits.dtype)
        log_targets = probabilities.clamp(min=_LEAST).log()
        if self.divergence == "squared":
            apart = (logits - logits.mean(-1, keepdim=True)) - (log_targets - log_targets.mean(-1, keepdim=True))
            losses = apart.square().mean(-1)
        elif self.divergence == "scores":
            losses = (probabilities * (log_targets - F.log_softmax(logits, dim=-1))).sum(-1)
        else:
            goal = F.log_softmax(log_targets / self.temperature, dim=-1)
            log_probabilities = F.log_softmax(logits / self.temperature, dim=-1)
            losses = (goal.exp() * (goal - log_probabilities)).sum(-1) * self.temperature**2
        predictions, best = logits.detach(), probabilities.argmax(-1) if len(logits) else None
        right = predictions[:, 0] if best is None else (predictions.argmax(-1) == best).to(logits.dtype)
        return Loss(self.weighed(losses, batch), {"correct": self.weighed(right, batch)})


@register("objective", "soft_classification")
def soft_classification(
    *,
    set: str = "label",
    classes: Count = 2,
    loss: SoftLoss = "kl_divergence",
    temperature: Positive = 1.0,
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> SoftClassification:
    """The class probabilities that another model assigns to a text (Hinton et al., 2015), or its scores (Tang et al., 2019).

    The head and its parameters are those of `regress`, with an output for each of `classes`.

    Differs: with `loss: squared` the other model's scores come from its probabilities, which lack the constant that all
    classes share.
    """
    head = summary_head(
        classes=classes, width=width, clock=clock, dropout=dropout, pool=pool, transform=transform,
        output_bias=output_bias, reading=reading,
    )
    return SoftClassification(head, set=set, reading=reading, loss=loss, temperature=temperature)
