"""Functional relative positions: a fixed vector for each distance is added to keys and values (NEZHA; Wei et al., 2019, §2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.networks.blocks.sinusoid import sinusoids


@dataclass(frozen=True)
class Relative:
    """`table` (2R + 1, W): one vector per distance clipped to ±R; `index` (Lq, Lk): the row for query i and key j.

    Neither (Lq, Lk, W) tensor of the definition is ever made: scores against the table are gathered, shares are summed by
    distance before they meet it.
    """

    table: Tensor
    index: Tensor

    def scores(self, query: Tensor) -> Tensor:
        """q_i · a_ij for queries (B, H, Lq, W): (B, H, Lq, Lk)."""
        near = query @ self.table.to(query.dtype).t()
        return near.gather(-1, self.index.expand(*near.shape[:2], *self.index.shape))

    def values(self, shares: Tensor) -> Tensor:
        """The sum over j of shares_ij a_ij, from (B, H, Lq, Lk) to (B, H, Lq, W)."""
        sums = shares.new_zeros(*shares.shape[:-1], len(self.table))
        return sums.scatter_add(-1, self.index.expand_as(shares), shares) @ self.table.to(shares.dtype)


def functional(limit: int, width: int, *, length: int, past: int, device: torch.device) -> Relative:
    """The relation of `length` new tokens to all `past + length`: row clip(j - i, -limit, limit) + limit of the sinusoids."""
    query = torch.arange(past, past + length, device=device)[:, None]
    key = torch.arange(past + length, device=device)
    return Relative(sinusoids(2 * limit + 1, width, device), (key - query).clamp_(-limit, limit) + limit)
