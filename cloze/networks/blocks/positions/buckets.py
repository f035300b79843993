"""Relative positions in buckets: one learned number per head and class of distance is added to the scores (T5)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from cloze.networks.blocks.positions.relation import Relation
from cloze.networks.blocks.selected import Selected


def bucket(distance: Tensor, *, both: bool, buckets: int = 32, farthest: int = 128) -> Tensor:
    """The bucket of each distance key - query (integers of any shape), as in mesh_tensorflow's `_relative_position_bucket`.

    `both`: half of the buckets are for keys after the query; otherwise these share the bucket of distance 0. Half of what
    a side has are exact, the rest grow with the logarithm up to `farthest`; everything beyond falls into the last.

    >>> bucket(torch.tensor([0, -7, -8, -91, 1, 64]), both=True).tolist()
    [0, 7, 8, 15, 17, 30]
    """
    side = buckets // 2 if both else buckets
    away = distance.abs() if both else (-distance).clamp(min=0)
    exact = side // 2
    grown = torch.log(away.clamp(min=1).float() / exact) / math.log(farthest / exact) * (side - exact)
    near = torch.where(away < exact, away, (exact + grown.long()).clamp(max=side - 1))
    return near + (distance > 0) * side if both else near


class Buckets(nn.Module):
    """The table, (buckets, heads), and the numbers it adds to the scores of a stack's every layer."""

    def __init__(self, *, heads: int, both: bool, buckets: int, farthest: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.both, self.buckets, self.farthest = both, buckets, farthest

    def forward(self, length: int, past: int = 0, position_ids: Tensor | None = None) -> Tensor:
        """(1, H, L, past + L) for `length` queries after `past` tokens; (B, H, L, L) with `position_ids` (B, L), which tell the
        distances where columns do not."""
        device = self.table.weight.device
        if position_ids is None:
            query = torch.arange(past, past + length, device=device)[None, :, None]
            distance = torch.arange(past + length, device=device) - query
        else:
            distance = position_ids[:, None, :] - position_ids[:, :, None]
        rows = bucket(distance, both=self.both, buckets=self.buckets, farthest=self.farthest)
        return self.table(rows).permute(0, 3, 1, 2).contiguous()  # a sum with strided numbers takes ten times as long


@dataclass(frozen=True)
class Bias(Relation):
    """Numbers that join the scores of every layer of a stack: (1, H, Lq, Lk), or (B, H, K, Lk) of selected queries."""

    bias: Tensor
    _joined: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def select(self, selected: Selected) -> Bias:
        """Only the selected tokens ask."""
        return Bias(selected.queries_of(self.bias))

    def joined(self, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The numbers with what is added to hide (B or 1, 1, Lq, Lk), made once for all layers."""
        if dtype not in self._joined:
            self._joined[dtype] = (self.bias if mask is None else self.bias + mask).to(dtype)
        return self._joined[dtype]
