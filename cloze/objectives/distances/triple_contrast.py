"""Facts and wrong triples, told apart by the distance of the vectors of their texts: the loss of KEPLER."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.objectives.objective import Loss, Objective, at_least_float32
from cloze.registry import Given, register

_EPSILON = 2.0  # widens the range that relations start in (thunlp/OpenKE and THU-KEG/KEPLER)


@register("objective", "triple_contrast")
class TripleContrast(Objective):
    """-½ (log σ(margin - d(fact)) + mean of log σ(d(wrong) - margin)) for each fact (KEPLER, Wang et al., 2021, §3.2).

    d(h, r, t) is the norm of h + r - t; h and t are the summaries (E, D) of the texts of entities, r is a row of the table of
    relations. Takes `owner` (E,) and `triple` (E, 3): the first triple of each owner is the fact, the others are wrong. The ½ is
    that of the authors' code; the paper has none. `relations` are the ids of the table's rows; a run takes them from the graph.
    With `describe`, r is the summary of the relation's text, in the row `relation_row`, and there is no table (KEPLER-Rel). If
    `conditioned`, the first two triples of each owner are the fact, and the mean of their distances counts (KEPLER-Cond, as in
    fairseq/models/roberta/model.py of THU-KEG/KEPLER).

    The loss is computed in 32 bits. Metric `correct`: the facts that are nearer than all their wrong triples. Parameters:
    `head.weight`, uniform in ±(margin + 2) / D at the start; none with `describe`.

    Differs: the authors' code encodes head and tail twice, with different dropout, and takes the mean of the two distances of the
    fact; here each text is encoded once.
    """

    likelihood = False
    of_records = True
    head: nn.Module

    def __init__(
        self, *, margin: Positive = 4.0, norm: Literal[1, 2] = 2, describe: bool = False, conditioned: bool = False,
        relations: list[str] | None = None, width: Given[int],
    ) -> None:
        super().__init__()
        self.margin, self.norm, self.describe, self.conditioned, self.width = margin, norm, describe, conditioned, width
        self.relations = tuple(relations or ())
        self.reads = ("summary",)
        self.takes = frozenset({"owner", "triple"}) | ({"relation_row"} if describe else set())
        if describe:
            self.head = nn.Identity()
            return
        self.head = nn.Embedding(max(len(self.relations), 1), width)
        nn.init.uniform_(self.head.weight, -(margin + _EPSILON) / width, (margin + _EPSILON) / width)

    def count(self, batch: Batch) -> Tensor:
        """The number of facts."""
        return _first(batch["owner"]).sum(dtype=torch.float32)

    def distances(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """d of vectors (…, D) of entities and relations, in 32 bits."""
        head, relation, tail = (at_least_float32(vectors) for vectors in (head, relation, tail))
        return torch.linalg.vector_norm(head + relation - tail, ord=self.norm, dim=-1)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The distances of the triples of all rows, (E,); 0 in rows without one."""
        vectors, triple = states[self.reads[0]], batch["triple"].long()
        first = _first(batch["owner"])
        base = torch.where(first, torch.arange(len(first), device=first.device), 0).cummax(0).values  # of its owner's rows
        head, relation, tail = triple.clamp(min=0).unbind(1)
        steps = vectors[base + batch["relation_row"].long().clamp(min=0)] if self.describe else self.head(relation)
        with torch.autocast(vectors.device.type, enabled=False):
            return torch.where(triple[:, 0] >= 0, self.distances(vectors[base + head], steps, vectors[base + tail]), 0.0)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss and the metric. Rows without a triple have no weight, so that a GPU need not say how many there are."""
        first = _first(batch["owner"])
        owner, zeros = first.long().cumsum(0) - 1, scores.new_zeros(len(scores))  # as many slots as rows
        of_fact = first | first.roll(1) if self.conditioned else first
        of_wrong = (batch["triple"][:, 0] >= 0) & ~of_fact

        def mean(values: Tensor, rows: Tensor) -> Tensor:
            sums, numbers = (zeros.index_add(0, owner, torch.where(rows, value, 0.0)) for value in (values, zeros + 1))
            return sums / numbers.clamp(min=1)

        facts = mean(scores, of_fact)
        losses = -0.5 * (F.logsigmoid(self.margin - facts) + mean(F.logsigmoid(scores - self.margin), of_wrong))
        nearer = zeros.index_add(0, owner, (of_wrong & (scores.detach() <= facts.detach()[owner])).to(scores.dtype))
        real = torch.arange(len(scores), device=scores.device) < first.sum()
        return Loss(torch.where(real, losses, 0.0).sum(), {"correct": ((nearer == 0) & real).sum(dtype=scores.dtype)})


def _first(owner: Tensor) -> Tensor:
    """Whether each row (R,) is the first of its owner; the rows of an owner follow one another."""
    return torch.cat([owner.new_ones(min(len(owner), 1), dtype=torch.bool), owner[1:] != owner[:-1]])
