"""The loss of KnowBert's entity linker: the right candidate scores above a margin, every other below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.networks.blocks.candidates import Candidates
from cloze.networks.cost import Operations
from cloze.objectives.objective import Loss, Objective, wide
from cloze.registry import Given, register


@register("objective", "linking")
class Linking(Objective):
    """The mean of max(0, by - score) over right candidates and max(0, by + score) over wrong ones (Peters et al., KnowBert, 2019,
    §3.2; Kolitsas et al., 2018).

    Reads `linking` (P,), the scores of the candidates of `items/<of>` in the table `table`; takes `items/<set>` (E, R), the
    entities that are right, 0 for items that are not asked. Metrics: `correct`, the candidates on their side of zero. No
    parameters of its own.
    """

    likelihood = False
    in_training_alone = True
    reads = ("linking",)

    def __init__(
        self, *, set: str = "entity", of: str = "surface", table: str = "surfaces", by: Positive = 0.2,
        tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__()
        self.set, self.by = set, by
        self.right, self.items = f"items/{set}", f"items/{of}"
        self.takes = frozenset({self.right, self.items})
        self.candidates = Candidates(name=table, tables=tables, part="objectives.linking.table")
        self.head = nn.Identity()

    def _sides(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of every candidate (P,): whether it is asked, and 1 for the right one and -1 for others."""
        pairs = self.candidates(batch[self.items])
        right = batch[self.right].flatten().long()[pairs.item]
        return right > 0, torch.where(right == pairs.entity, 1.0, -1.0)

    def count(self, batch: Batch) -> Tensor:
        """The candidates that are asked."""
        return self._sides(batch)[0].sum(dtype=torch.float32)

    def scores(self, readings: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The scores, (P,)."""
        return readings["linking"]

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric."""
        asked, side = self._sides(batch)
        signed = wide(scores) * side.to(scores.device)
        losses = (self.by - signed).clamp(min=0) * asked
        return Loss(losses.sum(), {"correct": ((signed > 0) & asked).detach().sum().to(losses.dtype)})

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """Differences alone: no products."""
