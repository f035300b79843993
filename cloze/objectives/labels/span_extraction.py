"""Find where in a text a span begins and ends: the answer to a question."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.bounds import BelowOne
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import ClassHead
from cloze.objectives.objective import Loss, TargetsAtPositions
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register


@register("objective", "span_extraction")
class SpanExtraction(TargetsAtPositions):
    """The first and the last token of a span (Devlin et al., 2019, §4.2), or of none (§4.3): one linear map to two scores.

    The loss is the mean of two cross-entropies over the tokens of an example. `positions/<set>` (M, 2) are the first and the last
    token of the span; a span that is not in the example is placed at its summary token. Only tokens of the same packed
    example compete. `transform` is that of `classify`. Parameters: `head.output.*`, and
    `head.dense.*` and `head.norm.*` with a transform and a norm. Metrics: `correct`, both tokens found.
    """

    fittable = True
    likelihood = False  # of the span's place, not of `targets`, which say whether it is there
    head: ClassHead

    def __init__(
        self, *, set: str = "answer", transform: Transform = None, dropout: BelowOne = 0.0, width: Given[int],
        clock: Given[Clock],
    ) -> None:
        super().__init__(set=set)
        self.head = ClassHead(width=width, classes=2, transform=transform, dropout=Dropout(dropout, clock))
        self.reads = ("hidden",)
        self.optional |= {"block"}

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(2, M, L): the score of each token of the answer's row as first and as last token; -inf for tokens of other
        examples."""
        hidden = states["hidden"]
        width = hidden.shape[1]
        positions = batch[self.positions_field][:, 0].long()
        row = positions // width
        # (B, L, 2) to (2, B, L) to (2, M, L).
        scored: Tensor = self.head(hidden).movedim(-1, 0).index_select(1, row)
        if "block" not in batch:
            return scored
        block = batch["block"].index_select(0, row)
        other = block != batch["block"].flatten().index_select(0, positions)[:, None]  # (M, L)
        return scored.masked_fill(other, -torch.inf)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        width = scores.shape[-1]
        # Flat positions (M, 2) to columns (2, M).
        targets, weights = (batch[self.positions_field].long() % width).T, batch.get(self.weights_field)
        sums = [cross_entropy_sum(logits, labels, weights) for logits, labels in zip(scores, targets, strict=True)]
        right = (scores.detach().argmax(-1) == targets).all(0).float()
        correct = right.sum() if weights is None else (right * weights).sum()
        return Loss((sums[0][0] + sums[1][0]) / 2, {"correct": correct})
