"""Disentangled positions: learned vectors of distances that are keys for queries and queries for keys (DeBERTa, LTG-BERT)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.networks.blocks.computed import part_of
from cloze.networks.blocks.positions.relation import Relation
from cloze.networks.blocks.selected import Selected
from cloze.networks.choices import Disentangled


def log_bucket(distance: Tensor, *, buckets: int, max_length: int) -> Tensor:
    """The row of each distance query - key (integers of any shape) among 2·buckets - 1: `buckets` - 1 is that of distance 0.

    Distances up to half of the buckets have rows of their own, those beyond grow with the logarithm up to `max_length` - 1; what
    is farther has the last row of its side (ltgoslo/ltg-bert, `make_log_bucket_position`).

    >>> log_bucket(torch.tensor([0, 1, -1, 16, 17, 511, -9999]), buckets=32, max_length=512).tolist()
    [31, 32, 30, 47, 48, 62, 0]
    """
    middle = buckets // 2
    away = distance.abs().clamp(max=max_length - 1)
    far = torch.log(away.clamp(min=middle).double() / middle) / math.log((max_length - 1) / middle) * (middle - 1)
    grown = (far.ceil().long() + middle).clamp(max=buckets - 1)
    return torch.where(away <= middle, away, grown) * distance.sign() + buckets - 1


class DistanceVectors(nn.Module):
    """The vectors of all buckets, (2·buckets - 1, D), after a layer norm: what a network learns once for all layers."""

    def __init__(self, choice: Disentangled, width: int, epsilon: float) -> None:
        super().__init__()
        self.choice = choice
        self.table = nn.Embedding(2 * choice.buckets - 1, width)
        self.norm = nn.LayerNorm(width, eps=epsilon)

    def forward(self) -> Tensor:
        """(R, D)."""
        vectors: Tensor = self.norm(self.table.weight)
        return vectors

    def relation(self, *, length: int, past: int, device: torch.device, position_ids: Tensor | None = None) -> ByBuckets:
        """The relation of `length` new tokens to all `past + length`; with `position_ids` (B, L), of tokens that stand there."""
        if position_ids is not None:
            distance = position_ids[:, None, :, None] - position_ids[:, None, None, :]
        else:
            query = torch.arange(past, past + length, device=device)[:, None]
            distance = (query - torch.arange(past + length, device=device))[None, None]
        index = log_bucket(distance, buckets=self.choice.buckets, max_length=self.choice.max_length)
        return ByBuckets(self(), index)


@dataclass(frozen=True)
class ByBuckets(Relation):
    """`vectors` (R, D), and for query i and key j the row `index` (1 or B, 1, Lq, Lk) of their distance."""

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    vectors: Tensor
    index: Tensor

    def select(self, selected: Selected) -> ByBuckets:
        """Only the selected tokens ask."""
        return replace(self, index=selected.queries_of(self.index))

    def bind(self, attention: Any) -> BoundBuckets:
        """With the maps to queries and keys of one layer, and its dropout of vectors."""
        vectors = attention.distance_dropout(self.vectors[None])[0]
        both = part_of(attention.projections, vectors, 0, 2 * attention.inner_width)  # (R, 2·H·W)
        query, key = both.unflatten(-1, (2, attention.heads, attention.head_width)).permute(1, 2, 3, 0)
        return BoundBuckets(query, key, self.index)


@dataclass(frozen=True)
class BoundBuckets(Relation):
    """`ByBuckets` in one layer: the vectors as queries and as keys, (H, W, R).

    No tensor (Lq, Lk, W) is made: products with all rows are gathered.
    """

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    far_queries: Tensor
    far_keys: Tensor
    index: Tensor

    def scores(self, query: Tensor, key: Tensor, scale: float) -> Tensor:
        """q_i · k(i - j) + k_j · q(i - j), scaled, for queries (B, H, Lq, W) and keys (B, H, Lk, W): (B, H, Lq, Lk)."""
        # Products with the vectors of all R buckets: (B, H, Lq, R), and of keys (B, H, Lk, R), transposed to (B, H, R, Lk). From
        # the axis R each pair of query and key takes its bucket, so both become (B, H, Lq, Lk).
        index = self.index.expand(query.shape[0], query.shape[1], -1, -1)
        by_query = (query * scale) @ self.far_keys.to(query.dtype)
        by_key = (key * scale) @ self.far_queries.to(key.dtype)
        return by_query.gather(-1, index) + by_key.transpose(-1, -2).gather(-2, index)
