"""Predict which entity a token names, among the entities of the batch (ERNIE, Tsinghua)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive, Width
from cloze.networks.blocks.inputs.known_vectors import KnownVectors
from cloze.networks.cost import Operations
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, TargetsAtPositions
from cloze.objectives.transforms import transformed
from cloze.registry import Given, register


class EntityHead(nn.Module):
    """norm(gelu(dense x)), (M, D) to (M, W), the width of the entities."""

    def __init__(self, width: int, entity_width: int, epsilon: float) -> None:
        super().__init__()
        self.dense, self.norm = dense(width, entity_width), nn.LayerNorm(entity_width, eps=epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """(M, D) to (M, W)."""
        vectors: Tensor = self.norm(transformed(self.dense(x), "gelu"))
        return vectors


@register("objective", "entity_prediction")
class EntityPrediction(TargetsAtPositions):
    """The denoising entity auto-encoder (Zhang et al., ERNIE, 2019, §3.4): cross-entropy of `targets/<set>`, ids of the table
    `entities`, at the tokens `positions/<set>`.

    The score of an entity is the product of its vector with norm(gelu(dense x)). The candidates are the entities that are targets
    in the batch, and the vector of zeros (thunlp/ERNIE, run_pretrain.py), so rows must stay together. Vectors are not trained.
    Metrics: `correct`. Parameters: `head.dense.*`, `head.norm.*`, 77,100 at the published size.
    """

    scope: Literal["row", "batch", "step"] = "batch"
    training_only = True
    likelihood = False  # among the entities of a batch: how often each occurs in the text is no baseline
    reads = ("hidden",)

    def __init__(
        self, *, set: str = "entity", entities: str = "entities", entity_width: Width = 100, norm_epsilon: Positive = 1e-12,
        width: Given[int], tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__(set=set)
        self.at = (self.positions_field,)
        self.head = EntityHead(width, entity_width, norm_epsilon)
        self.vectors = KnownVectors(
            name=entities, width=entity_width, tables=tables, part="objectives.entity_prediction.entities",
            option="objectives.entity_prediction.entity_width",
        )

    def candidates(self, batch: Batch) -> Tensor:
        """The ids of the candidates (1 + M,), ascending; 0 is the vector of zeros. An id that several tokens have occurs as
        often, and only its first place counts, so that a GPU need not say how many there are."""
        targets = batch[self.targets_field].long()
        return torch.cat([targets.new_zeros(1), targets]).sort().values

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The map, and the products with the vectors of the candidates."""
        rows = len(batch[self.positions_field])
        counted.add(rows, self.head)
        counted.add_frozen_products(rows * len(self.candidates(batch)) * self.vectors.weight.shape[1])

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, 1 + M), -inf where a candidate occurs again."""
        rows = states["hidden"].flatten(0, -2).index_select(0, batch[self.positions_field].long())
        queries, candidates = self.head(rows), self.candidates(batch)
        scores = queries @ self.vectors(candidates).to(queries.dtype).t()
        return scores.masked_fill(candidates == torch.cat([candidates.new_full((1,), -1), candidates[:-1]]), -torch.inf)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of cross-entropies."""
        targets = torch.searchsorted(self.candidates(batch), batch[self.targets_field].long())
        total, correct = cross_entropy_sum(scores, targets, batch.get(self.weights_field))
        return Loss(total, {"correct": correct})
