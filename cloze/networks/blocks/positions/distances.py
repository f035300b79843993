"""The relation of Transformer-XL and XLNet: scores by distance, with learned biases of content, distance and segment.

The token in column i of a row that remembers m tokens reads the key in column j of [memory; row] from the distance m + i - j.
Scores are made for every distance once, from the largest down, and then moved: one product instead of one per query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.positions.relation import Relation
from cloze.networks.blocks.selected import Selected


def sinusoids(distances: Tensor, width: int) -> Tensor:
    """Sines, then cosines, of distances (R,): (R, D) float32 (Dai et al., 2019, §3.3; not interleaved, as in their code)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=distances.device) / width
    angles = distances.to(torch.float32)[:, None] * (10000.0**-exponents)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def distances_down(queries: int, keys: int, *, ahead: bool, clamp: int | None, device: torch.device) -> Tensor:
    """The distances of `shift`, from keys - 1 down to -1, or to those of the keys `ahead` of a query; clamped to ±`clamp`."""
    beyond = max(queries, 2) - 1 if ahead else 1
    down = torch.arange(keys - 1, -beyond - 1, -1, device=device)
    return down if clamp is None else down.clamp(-clamp, clamp)


def shift(scores: Tensor, keys: int) -> Tensor:
    """Scores by distance (…, Lq, R) to scores by key (…, Lq, Lk), for R > Lk: [i, j] is the score of distance Lk - Lq + i - j.

    Column c of `scores` is the distance Lk - 1 - c. Where R does not reach a key ahead of the query, its entry is another
    query's score, to be masked.
    """
    queries, across = scores.shape[-2:]
    # The Lq·R numbers of a head, read from number Lq - 1 on in rows of R - 1: each query begins one column earlier than the one
    # before it, so [i, j] is column Lq - 1 - i + j of query i, or, past its last column, of the next query.
    flat = scores.flatten(-2)[..., queries - 1 : queries * across - 1]
    return flat.unflatten(-1, (queries, across - 1))[..., :keys]


def shift_at(scores: Tensor, columns: Tensor, queries: int, keys: int) -> Tensor:
    """`shift` for the queries at `columns` (B, K) of rows of `queries` tokens: (B, H, K, R) to (B, H, K, Lk)."""
    shifted = queries - 1 - columns[:, :, None] + torch.arange(keys, device=scores.device)  # (B, K, Lk) columns of R
    return scores.gather(-1, shifted[:, None].expand(-1, scores.shape[1], -1, -1))


def distance_maps(
    *, width: int, heads: int, head_width: int, segments: bool, own_biases: bool
) -> dict[str, nn.Module | nn.Parameter]:
    """What an attention learns for this relation; without `own_biases` the network gives the same u and v to all layers."""
    shape = (heads, head_width)
    names = ["content_bias", "distance_bias"] if own_biases else []
    parameters: dict[str, nn.Module | nn.Parameter] = {
        name: nn.Parameter(torch.zeros(shape)) for name in [*names, *(["segment_bias"] if segments else [])]
    }
    if segments:
        parameters["segments"] = nn.Parameter(torch.zeros(2, *shape))
    return {**parameters, "distances": nn.Linear(width, heads * head_width, bias=False)}


class StepDropout(Dropout):
    """Dropout in what all rows of a step share: the numbers depend only on the step, not on micro-batches."""

    def _row_keys(self, row: Tensor) -> tuple[Tensor, Tensor]:
        first_row, self.clock.first_row = self.clock.first_row, torch.zeros_like(self.clock.first_row)
        try:
            return super()._row_keys(row)
        finally:
            self.clock.first_row = first_row


@dataclass(frozen=True)
class Distances(Relation):
    """Score = (q + u)·k + (q + v)·W R[distance] + (q + s)·e[same segment or not] (Dai et al., 2019; Yang et al., 2019).

    `sinusoids` are those of all distances, (R, D), or (2, R, D) where rows are read in different directions: as they stand and
    negated, which `reversed` (B,) chooses. `differs` says whether query and key are of different segments, (B, 1, Lq, Lk); None:
    no segments. `biases` are u and v where layers share them. Rows of `queries` tokens read `keys` tokens; with `columns`
    (B, K) only these tokens ask.
    """

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    sinusoids: Tensor
    queries: int
    keys: int
    biases: tuple[Tensor, Tensor] | None = None
    differs: Tensor | None = None
    reversed: Tensor | None = None
    columns: Tensor | None = None

    def select(self, selected: Selected) -> Distances:
        """Only the selected tokens ask."""
        differs = None if self.differs is None else selected.queries_of(self.differs)
        return replace(self, columns=selected.columns, differs=differs)

    def bind(self, attention: Any) -> LearnedDistances:
        """With the maps of one layer."""
        heads = (attention.heads, attention.head_width)
        far = attention.distances(self.sinusoids).unflatten(-1, heads).movedim(-3, -1)  # (…, R, H·W) to (…, H, W, R)
        far = far if self.reversed is None else far.index_select(0, self.reversed.long())
        u, v = (attention.content_bias, attention.distance_bias) if self.biases is None else self.biases
        kinds = None if self.differs is None else (attention.segment_bias, attention.segments)
        return LearnedDistances(self, far, u, v, kinds)


@dataclass(frozen=True)
class LearnedDistances(Relation):
    """`Distances` in one layer: the distances as keys `far`, (H, W, R) or (B, H, W, R), the biases, and what segments add."""

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    view: Distances
    far: Tensor
    u: Tensor
    v: Tensor
    segments: tuple[Tensor, Tensor] | None

    def content(self, query: Tensor) -> Tensor:
        """q + u."""
        return query + self.u.to(query.dtype)[:, None]

    def scores(self, query: Tensor, key: Tensor, scale: float) -> Tensor:
        """By distance, and by segment."""
        view = self.view
        by_distance = (query + self.v.to(query.dtype)[:, None]) * scale @ self.far  # (B, H, Lq, R)
        if view.columns is None:
            scores = shift(by_distance, view.keys)
        else:
            scores = shift_at(by_distance, view.columns, view.queries, view.keys)
        if self.segments is not None and view.differs is not None:
            bias, vectors = (part.to(query.dtype) for part in self.segments)
            kinds = (query + bias[:, None]) * scale @ vectors.permute(1, 2, 0)  # (B, H, Lq, 2): same segment, another one
            scores = scores + torch.where(view.differs, kinds[..., 1:], kinds[..., :1])
        return scores
