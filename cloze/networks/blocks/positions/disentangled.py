"""Disentangled positions: learned vectors of distances that are keys for queries and queries for keys (DeBERTa, LTG-BERT)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cloze.networks.blocks.computed import part_of
from cloze.networks.blocks.positions.relation import Relation
from cloze.networks.blocks.selected import Selected
from cloze.networks.choices import Disentangled
from cloze.networks.cost import Operations, SequenceSize, is_trained


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


def distance_maps(choice: Disentangled, *, width: int, inside: int, biases: bool | Literal["not_keys"]) -> dict[str, nn.Linear]:
    """The maps of one layer from vectors of distances to keys and queries, (inside, D), where they have maps of their own."""
    if choice.maps == "shared":
        return {}
    keys = {"distance_keys": nn.Linear(width, inside, bias=biases is True)} if choice.as_keys else {}
    return keys | ({"distance_queries": nn.Linear(width, inside, bias=bool(biases))} if choice.as_queries else {})


class DistanceVectors(nn.Module):
    """The vectors of all buckets, (R, D), after a layer norm if there is one: what a network learns once for all layers."""

    def __init__(self, choice: Disentangled, width: int, epsilon: float) -> None:
        super().__init__()
        self.choice = choice
        self.table = nn.Embedding(choice.rows, width)
        self.norm = nn.LayerNorm(width, eps=epsilon) if choice.norm else None

    def forward(self) -> Tensor:
        """(R, D)."""
        vectors: Tensor = self.table.weight if self.norm is None else self.norm(self.table.weight)
        return vectors

    def relation(self, *, length: int, past: int, device: torch.device, position_ids: Tensor | None = None) -> ByBuckets:
        """The relation of `length` new tokens to all `past + length`; with `position_ids` (B, L), of tokens that stand there."""
        if position_ids is not None:
            distance = position_ids[:, None, :, None] - position_ids[:, None, None, :]
        else:
            query = torch.arange(past, past + length, device=device)[:, None]
            distance = (query - torch.arange(past + length, device=device))[None, None]
        return ByBuckets(self(), self.rows_of(distance), self.choice)

    def rows_of(self, distance: Tensor) -> Tensor:
        """The row of each distance query - key (integers of any shape)."""
        buckets, longest = self.choice.buckets, self.choice.max_length
        if buckets is None:
            row = distance.clamp(1 - longest, longest - 1) + longest - 1
        else:
            row = log_bucket(distance, buckets=buckets, max_length=longest)
        return torch.where(distance > -longest, row + 1, 0) if self.choice.beyond else row

    def count_in(self, attention: Any, counted: Operations, size: SequenceSize) -> None:
        """Count the products of one layer: the vectors meet its maps, its queries and its keys."""
        inside, terms = attention.inner_width, self.choice.as_keys + self.choice.as_queries
        maps = attention.distance_keys or attention.distance_queries or attention.projections
        vectors = counted.branch(needs_grad=is_trained(self))
        vectors.add_weight_products(self.choice.rows * terms * inside * self.table.embedding_dim, trained=is_trained(maps))
        counted.add_branches(vectors)
        counted.add_row_products(terms * size.tokens * self.choice.rows * inside)


@dataclass(frozen=True)
class ByBuckets(Relation):
    """`vectors` (R, D), and for query i and key j the row `index` (1 or B, 1, Lq, Lk) of their distance."""

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    vectors: Tensor
    index: Tensor
    choice: Disentangled

    def select(self, selected: Selected) -> ByBuckets:
        """Only the selected tokens ask."""
        return replace(self, index=selected.queries_of(self.index))

    def bind(self, attention: Any) -> BoundBuckets:
        """With the maps to queries and keys of one layer, and its dropout of vectors."""
        vectors = attention.distance_dropout(self.vectors[None])[0]
        heads = (attention.heads, attention.head_width)
        if self.choice.maps == "shared":
            first, last = (0 if self.choice.as_queries else 1), (2 if self.choice.as_keys else 1)
            inside = attention.inner_width
            mapped = part_of(attention.projections, vectors, first * inside, last * inside)  # (R, H·W), or (R, 2·H·W) for both
            query, key = mapped[:, : (1 - first) * inside], mapped[:, (1 - first) * inside :]
        else:
            none = vectors.new_empty(len(vectors), 0)
            query = attention.distance_queries(vectors) if self.choice.as_queries else none
            key = attention.distance_keys(vectors) if self.choice.as_keys else none
        far_queries, far_keys = (
            None if kind.shape[1] == 0 else kind.unflatten(-1, heads).permute(1, 2, 0) for kind in (query, key)
        )
        return BoundBuckets(far_queries, far_keys, self.index)


@dataclass(frozen=True)
class BoundBuckets(Relation):
    """`ByBuckets` in one layer: the vectors as queries and as keys, (H, W, R), as far as they are either.

    No tensor (Lq, Lk, W) is made: products with all rows are gathered.
    """

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    far_queries: Tensor | None
    far_keys: Tensor | None
    index: Tensor

    def scores(self, query: Tensor, key: Tensor, scale: float) -> Tensor:
        """q_i · k(i - j) + k_j · q(i - j), scaled, for queries (B, H, Lq, W) and keys (B, H, Lk, W): (B, H, Lq, Lk)."""
        # Products with the vectors of all R buckets: (B, H, Lq, R), and of keys (B, H, Lk, R), transposed to (B, H, R, Lk). From
        # the axis R each pair of query and key takes its bucket, so both become (B, H, Lq, Lk).
        index = self.index.expand(query.shape[0], query.shape[1], -1, -1)
        scores = None
        if self.far_keys is not None:
            scores = ((query * scale) @ self.far_keys.to(query.dtype)).gather(-1, index)
        if self.far_queries is not None:
            by_key = (key * scale) @ self.far_queries.to(key.dtype)
            asked = by_key.transpose(-1, -2).gather(-2, index)
            scores = asked if scores is None else scores + asked
        assert scores is not None  # there is one term at least
        return scores
