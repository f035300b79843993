"""Classify spans of a text: the relation of two names, the sense of a word, the type of an entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import ClassHead
from cloze.objectives.objective import ClassWeights, Loss, TargetsAtPositions, weights_of
from cloze.objectives.transforms import Nonlinearity, Tanh, plain_transform
from cloze.registry import Given, register

Pool = Literal["first", "mean", "ends", "cls"]


@register("objective", "classify_span")
class ClassifySpan(TargetsAtPositions):
    """One of `classes` for `spans` spans together: the vectors that `pool` makes of the spans, concatenated.

    `first`: the state of its first token (Devlin et al., 2019, §5.3, of words); `mean`: the mean of its states (R-BERT: Wu
    and He, 2019, §3.2); `ends`: the states of its first and last token, concatenated (Lee et al., 2017, §4). `cls`: that of the
    row's first token, `[CLS]`, through BERT's pooler (dense, tanh; `head.pool.*`).
    `positions/<set>` (M, 2 · spans) are the first and the last token of each span, in one row. Labelled text provides `spans`
    and `classes`; `class_weights` are as in `relation_prediction`.
    Parameters: `head.dense.*` with a transform, `head.output.*`. Metrics: `correct`.
    """

    head: ClassHead
    weighs_classes = True
    fittable = True

    def __init__(
        self, *, set: str = "label", classes: Count = 2, spans: Count = 1, pool: Pool = "mean",
        transform: Nonlinearity | None = None, dropout: BelowOne = 0.0,
        class_weights: ClassWeights = None, width: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__(set=set)
        if pool == "cls" and transform is not None:
            raise RecipeError("classify_span: with pool: cls, the transform is that of BERT's pooler. Leave transform out.")
        self.class_weights = weights_of(class_weights, classes)
        self.spans, self.pool = spans, pool
        states = 1 if pool == "cls" else spans * (2 if pool == "ends" else 1)
        self.head = ClassHead(
            width=states * width, classes=classes, dropout=Dropout(dropout, clock), pool=pool == "cls",
            transform=Tanh() if pool == "cls" else plain_transform(transform),
        )
        self.reads, self.by_row = ("hidden",), pool == "cls"
        self.at = (self.positions_field,) if pool in ("first", "ends") else ()  # others read further states

    def vectors(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """The vectors of the spans, (M, spans · D), (M, 2 · spans · D) or (M, D), from states (B, L, D) and
        positions (M, 2 · spans)."""
        flat, first, last = hidden.flatten(0, 1), positions[:, 0::2], positions[:, 1::2]
        if self.pool == "cls":
            return hidden[first[:, 0] // hidden.shape[1], 0]
        if self.pool == "mean":
            length = hidden.shape[1]
            sums = F.pad(hidden.cumsum(1, dtype=torch.float64), (0, 0, 1, 0))  # before each token of a row, and after the last
            row = first // length
            vectors = (sums[row, last % length + 1] - sums[row, first % length]) / (last + 1 - first)[..., None]
            vectors = vectors.to(hidden.dtype)
        elif self.pool == "first":
            vectors = flat[first]
        else:
            vectors = torch.cat([flat[first], flat[last]], dim=-1)
        return vectors.flatten(1)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C)."""
        logits: Tensor = self.head(self.vectors(states["hidden"], batch[self.positions_field].long()))
        return logits

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        total, correct = cross_entropy_sum(scores, batch[self.targets_field].long(), self.target_weights(batch))
        return self.with_accuracy(total, correct, scores, batch)
