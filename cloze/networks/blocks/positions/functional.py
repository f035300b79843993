"""Functional relative positions: a fixed vector per distance is added to keys and values (NEZHA; Wei et al., 2019, §2.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from cloze.networks.blocks.positions.relation import Relation
from cloze.networks.blocks.positions.sinusoid import sinusoids
from cloze.networks.blocks.selected import Selected


@dataclass(frozen=True)
class Functional(Relation):
    """`table` (2R + 1, W): one vector per distance clipped to ±R; `index` (Lq, Lk) or (B, 1, Lq, Lk): its row for query i, key j.

    Neither (Lq, Lk, W) tensor of the definition is ever made: scores against the table are gathered, and probabilities are
    summed by distance before they meet it.
    """

    by_kernel: ClassVar[bool] = False  # type: ignore[misc]
    table: Tensor
    index: Tensor

    def select(self, selected: Selected) -> Functional:
        """Only the selected tokens ask."""
        return replace(self, index=selected.queries_of(self.index[None, None]))

    def scores(self, query: Tensor, key: Tensor, scale: float) -> Tensor:
        """q_i · a_ij, scaled, for queries (B, H, Lq, W): (B, H, Lq, Lk)."""
        near = query @ (self.table.to(query.dtype) * scale).t()
        return near.gather(-1, self.index.expand(*near.shape[:2], -1, -1))

    def values(self, probabilities: Tensor) -> Tensor:
        """The sum over j of p_ij a_ij, from (B, H, Lq, Lk) to (B, H, Lq, W)."""
        sums = probabilities.new_zeros(*probabilities.shape[:-1], len(self.table))
        index = self.index.expand_as(probabilities)
        return sums.scatter_add(-1, index, probabilities) @ self.table.to(probabilities.dtype)


def functional(
    limit: int, width: int, *, length: int, past: int, device: torch.device, position_ids: Tensor | None = None
) -> Functional:
    """The relation of `length` new tokens to all `past + length`: row clip(j - i, -limit, limit) + limit of the sinusoids.

    With `position_ids` (B, L), i and j are the positions of the tokens instead of their columns."""
    if position_ids is not None:
        query, key = position_ids[:, None, :, None], position_ids[:, None, None, :]
    else:
        query = torch.arange(past, past + length, device=device)[:, None]
        key = torch.arange(past + length, device=device)
    return Functional(sinusoids(2 * limit + 1, width, device), (key - query).clamp_(-limit, limit) + limit)
