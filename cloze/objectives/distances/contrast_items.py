"""Find the right item, such as a hidden frame, among those of the other targets of the batch: noise-contrastive estimation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive, Width
from cloze.networks.cost import Operations
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, TargetsAtPositions
from cloze.registry import Given, register


@register("objective", "contrast_items")
class ContrastItems(TargetsAtPositions):
    """-log of the probability of the target's own key in a softmax over the keys of all targets of the batch (CBT; Sun et al.,
    2019; UniVL; Luo et al., 2020).

    The query is the state of an item at `positions/<set>`, the key its vector in `values/<set>` (M, C), both mapped to `project`
    numbers; scores are divided by `temperature`. With N other targets, the loss of uninformative keys is ln(N + 1). Rows must
    stay together, because the targets of one are the negatives of others. Metric `correct`. Parameters: `head.query.*` and
    `head.key.weight`.
    """

    scope: Literal["row", "batch", "step"] = "batch"
    training_only = True
    reads = ("hidden",)
    head: nn.ModuleDict

    def __init__(
        self, *, set: str = "features", numbers: Width = 2048, project: Width = 256, temperature: Positive = 1.0,
        width: Given[int],
    ) -> None:
        super().__init__(set=set)
        self.values_field = f"values/{set}"
        self.takes = frozenset({self.values_field, self.positions_field})
        self.at = (self.positions_field,)
        self.temperature, self.project = temperature, project
        self.head = nn.ModuleDict({"query": dense(width, project), "key": dense(numbers, project, bias=False)})

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """Both maps, and the products of every query with every key."""
        rows = len(batch[self.positions_field])
        keys = counted.branch(needs_grad=False)
        keys.add(rows, self.head["key"])
        counted.add(rows, self.head["query"])
        counted.add_branches(keys)
        counted.add_row_products(rows * rows * self.project)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, M): every query with every key; minus infinity at padding."""
        rows = states["hidden"].flatten(0, -2).index_select(0, batch[self.positions_field].long())
        query, key = self.head["query"](rows), self.head["key"](batch[self.values_field].to(rows.dtype))
        similarities = query @ key.t() / self.temperature
        if self.weights_field not in batch:
            return similarities
        diagonal = torch.eye(len(similarities), dtype=torch.bool, device=similarities.device)
        mask = (batch[self.weights_field] == 0)[None] & ~diagonal
        return similarities.masked_fill(mask, float("-inf"))

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of cross-entropies over the keys."""
        diagonal = torch.arange(len(scores), device=scores.device)
        total, correct = cross_entropy_sum(scores, diagonal, batch.get(self.weights_field))
        return Loss(total, {"correct": correct})
