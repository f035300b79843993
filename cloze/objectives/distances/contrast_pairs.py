"""Find the items that belong to a text among those of all rows, from a network that has read every pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks.blocks.initial import Law
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.distances.contrast import fingerprints
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, Objective
from cloze.registry import Given, register


@register("objective", "contrast_pairs")
class ContrastPairs(Objective):
    """-log of the probability of a row's own pair in a softmax over the pairs of the batch that have its text, or its items
    (CBT; Sun et al., 2019, §3.3; UniVL; Luo et al., 2020, §3.3).

    It reads `pairs` (B, B, D), what is pooled of the text of each row (first axis) with the items of each row; a linear map gives
    each pair its score. `among: items` compares the items of all rows for each text, `among: texts` the texts of all rows for
    each row's items. Rows with the same text are no negatives of each other. With N others, the loss of uninformative pairs is
    ln(N + 1). Weights start as in `relation_prediction` (`initial`). Metric `correct`. Parameters: `head.weight`.
    """

    scope: Literal["row", "batch", "step"] = "batch"
    training_only = True
    reads = ("pairs",)

    def __init__(
        self, *, among: Literal["items", "texts"] = "items", initial: Law = "truncated", width: Given[int]
    ) -> None:
        super().__init__()
        self.takes, self.optional, self.among = frozenset({"tokens"}), frozenset({"block"}), among
        self.head = dense(width, 1, bias=False, initial=initial)

    def count(self, batch: Batch) -> Tensor:
        """The number of rows."""
        return torch.tensor(float(len(batch["tokens"])))

    def head_rows(self, batch: Batch) -> float:
        """One for every pair."""
        return len(batch["tokens"]) ** 2

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(B, B): a row for each text, or for the items of each row; minus infinity where another row has the same text."""
        logits = self.head(states["pairs"]).squeeze(-1)
        prints = fingerprints(batch["tokens"], batch.get("block"), len(logits))
        same = (prints[:, None] == prints) & ~torch.eye(len(prints), dtype=torch.bool, device=prints.device)
        logits = logits.masked_fill(same, float("-inf"))
        return logits if self.among == "items" else logits.t()

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of cross-entropies over the pairs."""
        total, correct = cross_entropy_sum(scores, torch.arange(len(scores), device=scores.device), None)
        return Loss(total, {"correct": correct})
