"""The losses of KnowBert's entity linkers: a margin between right and wrong candidates, or a choice among those of a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.networks.blocks.inputs.candidates import Candidates
from cloze.objectives.objective import Loss, Objective, at_least_float32
from cloze.registry import Given, register


class OfCandidates(Objective):
    """The base of losses of a linker.

    Reads `linking/<of>` (P,), the scores of the candidates of `items/<of>` in the table `table`; takes `items/<set>` (E, R), the
    entities that are right, 0 for items that are not asked. No parameters of its own.
    """

    likelihood = False
    training_only = True

    def __init__(self, *, set: str, of: str, table: str, tables: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.set, self.reads = set, (f"linking/{of}",)
        self.right, self.items = f"items/{set}", f"items/{of}"
        self.takes = frozenset({self.right, self.items})
        self.candidates = Candidates(name=table, tables=tables, part="objectives.linking.table")
        self.head = nn.Identity()

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The scores, (P,)."""
        return states[self.reads[0]]


@register("objective", "linking")
class Linking(OfCandidates):
    """The mean of max(0, by - score) over right candidates and max(0, by + score) over wrong ones (Peters et al., KnowBert, 2019,
    §3.2; Kolitsas et al., 2018).

    Reads `linking/<of>` (P,), the scores of the candidates of `items/<of>` in the table `table`; takes `items/<set>` (E, R), the
    entities that are right, 0 for items that are not asked. Metrics: `correct`, the candidates on their side of zero. No
    parameters of its own.
    """

    def __init__(
        self, *, set: str = "entity", of: str = "surface", table: str = "surfaces", by: Positive = 0.2,
        tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__(set=set, of=of, table=table, tables=tables)
        self.by = by

    def _sides(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of every candidate (P,): whether it is asked, and 1 for the right one and -1 for others."""
        pairs = self.candidates(batch[self.items])
        right = batch[self.right].flatten().long()[pairs.item]
        return right > 0, torch.where(right == pairs.entity, 1.0, -1.0)

    def count(self, batch: Batch) -> Tensor:
        """The candidates that are asked."""
        return self._sides(batch)[0].sum(dtype=torch.float32)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric."""
        counted, side = self._sides(batch)
        signed = at_least_float32(scores) * side.to(scores.device)
        losses = (self.by - signed).clamp(min=0) * counted
        return Loss(losses.sum(), {"correct": ((signed > 0) & counted).detach().sum().to(losses.dtype)})


@register("objective", "link_choice")
class LinkChoice(OfCandidates):
    """-log of the right candidate's probability in a softmax over those of its name (KnowBert's linker of WordNet; Peters et
    al., 2019, §4.1).

    Reads `linking/<of>` (P,), the scores of the candidates of `items/<of>` in the table `table`; takes `items/<set>` (E, R), the
    entities that are right, 0 for items that are not asked. A name whose right entity is no candidate does not count. Metrics:
    `correct`, the names whose best candidate is the right one. No parameters of its own.
    """

    def __init__(
        self, *, set: str = "entity", of: str = "surface", table: str = "surfaces",
        tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__(set=set, of=of, table=table, tables=tables)

    def _right(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The item of every candidate, and whether it is the right one of an item that is asked, (P,) each."""
        pairs = self.candidates(batch[self.items])
        return pairs.item, batch[self.right].flatten().long()[pairs.item] == pairs.entity

    def count(self, batch: Batch) -> Tensor:
        """The names that are asked and have the right candidate."""
        return self._right(batch)[1].sum(dtype=torch.float32)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric."""
        item, right = (indices.to(scores.device) for indices in self._right(batch))
        scores = at_least_float32(scores)
        best = scores.new_full((batch[self.items].numel(),), -torch.inf).scatter_reduce(0, item, scores.detach(), "amax")
        sums = scores.new_zeros(len(best)).index_add(0, item, (scores - best[item]).exp())
        losses = torch.where(right, (best + sums.log())[item] - scores, 0.0)
        return Loss(losses.sum(), {"correct": ((scores == best[item]) & right).sum(dtype=losses.dtype)})
