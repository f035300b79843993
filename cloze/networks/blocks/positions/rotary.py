"""Rotary positions: queries and keys are rotated by angles that grow with the position (Su et al., 2021, §3.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cloze.networks.blocks.positions.relation import Relation
from cloze.networks.blocks.positions.scaling import LinearScaling, LlamaScaling, scaled
from cloze.networks.blocks.selected import Selected


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys (B, H, L, W) rotated; column k goes with column k + W/2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


@dataclass(frozen=True)
class Rotation(Relation):
    """Cosines and sines of the angles of each token, float32 (B or 1, 1, L, W/2), for heads of width W.

    `queries`, (B, 1, K, W/2), are those of the tokens that ask, where these are not all.
    """

    cos: Tensor
    sin: Tensor
    queries: tuple[Tensor, Tensor] | None = None

    def select(self, selected: Selected) -> Rotation:
        """Only the selected tokens ask."""
        return replace(self, queries=(selected.queries_of(self.cos), selected.queries_of(self.sin)))

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Both rotated."""
        cos, sin = (self.cos, self.sin) if self.queries is None else self.queries
        return rotated(query, cos, sin), rotated(key, self.cos, self.sin)


def rotation(position_ids: Tensor, width: int, base: float, scaling: LinearScaling | LlamaScaling | None = None) -> Rotation:
    """The rotation of positions (B or 1, L): pair k of W/2 is rotated by position / base^(2k/W), or by less with `scaling`.

    Differs: the paper pairs neighbouring columns; here halves are paired, as in transformers, which is the same up to an
    order of the columns.
    """
    pair = torch.arange(0, width, 2, dtype=torch.float32, device=position_ids.device)
    angle = position_ids[:, None, :, None].float() * scaled(1.0 / base ** (pair / width), scaling)
    return Rotation(angle.cos(), angle.sin())
