"""Predict which of its candidates a mention means, or that it means none, by the rows of the candidates' tokens (E-BERT-MLM)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import NonNegative
from cloze.errors import RecipeError
from cloze.networks.cost import Operations
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.objective import SEQUENCES, Loss, TargetsAtPositions
from cloze.objectives.product import Product
from cloze.registry import Given, register


class NoCandidate(nn.Module):
    """The vector (1, E), drawn between ±`bound`, and the bias (1,) of no candidate."""

    def __init__(self, width: int, bound: float) -> None:
        super().__init__()
        self.vector, self.bias = nn.Parameter(torch.empty(1, width)), nn.Parameter(torch.zeros(1))
        nn.init.uniform_(self.vector, -bound, bound)

    def forward(self, rows: Tensor) -> Tensor:
        """(M, E) to (M, 1)."""
        return F.linear(rows, self.vector, self.bias)


@register("objective", "candidate_prediction")
class CandidatePrediction(TargetsAtPositions):
    """Cross-entropy over the candidates of each mention and no candidate (Poerner et al., 2020; NPoe/ebert, code/run_aida.py).

    `read: token_prediction` names the head over the vocabulary whose transformed states, one for each target of the same `set`,
    are multiplied with the rows of the candidates in its table; its biases are not read. `items/<candidates>` (B, R) are the ids
    of the tokens of a row's candidates, of which `item_length/<candidates>` (B,) exist, and `item_vectors/<candidates>` (B, R, 1)
    are added to their scores: the logarithms of their priors. A vector and a bias that are trained score no candidate. It is
    right where the target is no candidate. The vector starts uniformly between ±`bound`.

    `table` names the table of surface forms that the mentions come from, which stays with the head. `width` is that of the rows.
    Metrics: `correct`. Parameters: `head.vector`, `head.bias`, 769 in BERT-base.
    """

    reads = ("scores",)
    factored = frozenset({"scores"})
    likelihood = False  # among a few candidates: how often tokens occur is no baseline
    looks_up = ("table",)

    def __init__(
        self, *, set: str = "entity", candidates: str = "candidate", table: str = "surfaces", bound: NonNegative = 0.02,
        width: Given[int], vector_tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__(set=set)
        self.table = table
        self.items, self.lengths, self.priors = (f"{field}/{candidates}" for field in ("items", "item_length", "item_vectors"))
        self.takes = self.takes | {self.items, self.lengths, self.priors}
        self.optional = self.optional | SEQUENCES
        self.at = (self.positions_field,)
        tokens = (vector_tables or {}).get("tokens")
        self.width: int = width if tokens is None else tokens.embedding_dim
        self.head = NoCandidate(self.width, bound)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, 1 + R): no candidate, then those of the row of each target; -inf where there is none."""
        product: Any = states["scores"]
        if not isinstance(product, Product):
            raise RecipeError(
                "candidate_prediction: reads the vectors behind the scores of its head, and another part of the recipe reads the "
                "scores themselves. Leave one of the two out."
            )
        row = batch[self.positions_field].long() // sequence(batch).shape[1]
        ids = batch[self.items].long().index_select(0, row)
        vectors = F.embedding(ids, product.table).to(product.rows.dtype)  # (M, R, E)
        scores = torch.matmul(vectors, product.rows[:, :, None]).squeeze(-1)
        scores = scores + batch[self.priors].index_select(0, row)[:, :, 0].to(scores.dtype)
        exists = torch.arange(ids.shape[1], device=ids.device) < batch[self.lengths].index_select(0, row)[:, None]
        scores = scores.masked_fill(~exists, -torch.inf)
        none = self.head(product.rows)
        if product.bias is not None:  # it is not read, but several processes wait for its gradient
            none = none + 0.0 * product.bias.sum().to(none.dtype)
        return torch.cat([none.to(scores.dtype), scores], dim=1)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of cross-entropies."""
        row = batch[self.positions_field].long() // sequence(batch).shape[1]
        items = batch[self.items].long().index_select(0, row)
        right = (items == batch[self.targets_field].long()[:, None]) & (items > 0)  # 0 fills both up
        targets = torch.where(right.any(1), right.to(torch.uint8).argmax(1) + 1, 0).to(scores.device)
        total, correct = cross_entropy_sum(scores, targets, self.target_weights(batch))
        return Loss(total, {"correct": correct})

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The vector of no candidate, and the rows of the others."""
        mentions = len(batch[self.positions_field])
        counted.add(mentions, self.head)
        counted.add_frozen_products(mentions * batch[self.items].shape[1] * self.width)
