"""Classify states at given positions: what token prediction, token labelling and relation prediction share.

`StepModule` calls `forward` with the states that an objective reads. The state is gathered at the positions of the targets, goes
through a head (`heads.py`), and `cross_entropy.py` sums the losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze import fields
from cloze.batch import Batch, sequence
from cloze.bounds import BelowOne, Count
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
from cloze.objectives.cross_entropy import are_right, cross_entropy_sum, vocabulary_loss
from cloze.objectives.heads import ClassHead, VocabularyHead
from cloze.objectives.objective import SEQUENCES, ClassWeights, Kind, Loss, TargetsAtPositions, at_least_float32, weights_of
from cloze.objectives.product import Product
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register


class Classify(TargetsAtPositions):
    """Sum of cross-entropies of `targets/<set>` at `positions/<set>` of one state.

    `reading` is the state that is read: `hidden` (B, L, D), where positions are flat indices into B*L, or `summary` (E, D),
    where they are examples. The loss of a head with one output is binary cross-entropy. With `everywhere` the field
    `positions` may be absent: every position that is not padding then has a target, (B*L,).
    `smoothing` spreads that share of a target evenly over all classes; `z_loss` weighs the square of the logarithm of the
    softmax's denominator while training (see `token_prediction`).
    Targets are 0 … classes − 1; the recipe must give the edit and the head the same number of classes, which nothing checks.
    Metrics: `correct`; with one output also `positive`, the number of targets that are 1.
    """

    weighs_classes = True
    fittable = True

    def __init__(
        self, head: nn.Module, *, set: str, reading: str = "hidden", everywhere: bool = False, smoothing: float = 0.0,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__(set=set)
        self.head = head
        if not 0.0 <= smoothing < 1.0:
            raise RecipeError(f"smoothing: {smoothing} is out of range. Expected 0 <= smoothing < 1.")
        if not z_loss >= 0.0:
            raise RecipeError(f"z_loss: {z_loss} is negative. Expected 0 or more, such as 1e-4.")
        self.smoothing, self.z_loss = smoothing, z_loss
        self.everywhere = everywhere
        self.reads = (reading,)
        self.at: tuple[str, ...] = (self.positions_field,)
        if everywhere:
            self.takes = frozenset({self.targets_field})
            self.optional = SEQUENCES | {self.weights_field, self.positions_field, "block"}

    def count(self, batch: Batch) -> Tensor:
        """The sum of weights; without weights, the number of targets (positions that are not padding)."""
        if self.weights_field in batch or self.positions_field in batch:
            return super().count(batch)
        if "block" in batch:
            return (batch["block"] > 0).sum(dtype=torch.float32)
        shape = batch[self.targets_field].shape if fields.sequence(batch) is None else sequence(batch).shape[:2]
        return torch.tensor(float(shape.numel()))

    def rows(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The vectors that are classified, (M, D)."""
        state = states[self.reads[0]]
        state = state.flatten(0, -2)
        if self.positions_field in batch:
            return state.index_select(0, batch[self.positions_field].long())
        return state

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C), or (M,) for a head with one output."""
        logits = self.head(self.rows(states, batch))
        return logits.squeeze(-1) if logits.shape[-1] == 1 else logits

    def product(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor | Product:
        """The scores; those over a vocabulary are not multiplied out."""
        if not isinstance(self.head, VocabularyHead):
            return self.scores(states, batch)
        return Product(self.head.transform_rows(self.rows(states, batch)), self.head.weight, self.head.bias)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32; zero targets give a zero connected to the parameters. Overrides return `correct`, too."""
        targets = batch[self.targets_field].long()
        weights = self.loss_weights(batch)
        if scores.dim() == 2:
            total, correct = cross_entropy_sum(scores, targets, weights, self.smoothing, self._z_loss)
            return self.with_accuracy(total, correct, scores, batch)
        logits = at_least_float32(scores)
        losses = F.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
        positive = (targets > 0).float()
        correct = are_right(scores.detach(), targets)
        if weights is not None:
            losses, correct, positive = losses * weights, correct * weights, positive * weights
        loss = self.with_accuracy(losses.sum(), correct.sum(), scores, batch)
        return loss._replace(metrics={**loss.metrics, "positive": positive.sum()})

    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Loss and metrics from the states that are read.

        With a `VocabularyHead` the scores are computed in blocks, never all at once, and neither `scores` nor `loss` is called.
        A subclass that overrides one of the two gets all scores; to compute its own loss in blocks, it overrides `forward`, too
        (see `SampledPrediction`).
        """
        if not isinstance(self.head, VocabularyHead) or self._has_own_loss:
            return self.loss(self.scores(states, batch), batch)
        rows, table, bias = self.product(states, batch)
        targets, weights = batch[self.targets_field].long(), self.loss_weights(batch)
        total, correct = vocabulary_loss(rows, table, bias, targets, weights, self.smoothing, self._z_loss)
        return Loss(total, {"correct": correct})

    @property
    def _has_own_loss(self) -> bool:
        """Whether a subclass overrides `scores` or `loss`, so that the loss in blocks would not be its loss."""
        return type(self).scores is not Classify.scores or type(self).loss is not Classify.loss

    @property
    def _z_loss(self) -> float:
        return self.z_loss if self.training else 0.0

    def loss_weights(self, batch: Batch) -> Tensor | None:
        """The weight of each target in the loss; padding weighs 0. None: each weighs 1."""
        if self.weights_field not in batch and self.positions_field not in batch and "block" in batch:
            return (batch["block"].flatten() > 0).float()
        return self.target_weights(batch)


class ClassifySummary(Classify):
    """`Classify` of texts and of pairs, by their summary."""

    kind: Kind | None = "relation_prediction"

    def __init__(self, head: nn.Module, *, set: str) -> None:
        super().__init__(head, set=set, reading="summary")


def means(states: Tensor, batch: Batch) -> Tensor:
    """The mean of the states (B, L, D) of each row's tokens, (B, D), without padding."""
    if "block" not in batch:
        return states.mean(1)
    real = (batch["block"] > 0).unsqueeze(-1).to(states.dtype)
    return (states * real).sum(1) / real.sum(1).clamp(min=1.0)


class ClassifyMean(Classify):
    """`Classify` of texts by the mean of the states of all their tokens, special tokens included, padding excluded.

    Reads `hidden` (B, L, D); positions are rows.
    """

    kind: Kind | None = "relation_prediction"
    by_row = True

    def __init__(self, head: nn.Module, *, set: str) -> None:
        super().__init__(head, set=set, reading="hidden")
        self.at = ()
        self.optional |= {"block"}

    def rows(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The means that are classified, (M, D)."""
        return means(states["hidden"], batch).index_select(0, batch[self.positions_field].long())

    def head_rows(self, batch: Batch) -> float:
        """One for every target."""
        return batch[self.positions_field].shape[0]


@register("objective", "classify")
def classify(
    *,
    set: str = "main",
    classes: Count = 2,
    reading: Literal["hidden", "summary", "mean"] = "hidden",
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    class_weights: ClassWeights = None,
    initial: Law = "truncated",
    width: Given[int],
    clock: Given[Clock],
) -> Classify:
    """Softmax classification over `classes` at the positions of a set: the general form.

    `reading` is the state that is read; with `mean` the mean of a text's tokens is classified. A `transform` puts a dense map and
    a non-linearity before the output; `{gelu: {norm_epsilon: 1e-5, biases: false}}` is ModernBERT's head. With
    `output_bias: false` the output has no bias (GPT-2). `class_weights` weigh the loss of each class's targets, and weights
    start with `initial` (see `relation_prediction`).

    Parameters: `head.output.*`; with a transform `head.dense.*`, with a norm `head.norm.*`.
    """
    head = ClassHead(
        width=width, classes=classes, transform=transform, dropout=Dropout(dropout, clock), initial=initial
    )
    if not output_bias:  # it stays zero
        head.output.bias.requires_grad_(False)
    if reading == "mean":
        objective: Classify = ClassifyMean(head, set=set)
    else:
        objective = ClassifySummary(head, set=set) if reading == "summary" else Classify(head, set=set, reading=reading)
    objective.class_weights = weights_of(class_weights, classes)
    return objective
