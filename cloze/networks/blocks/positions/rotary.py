"""Rotary positions: queries and keys are rotated by angles that grow with the position (Su et al., 2021, §3.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

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

    `queries`, (B, 1, K, W/2), are those of the tokens that ask, where these are not all. With `values`, values are rotated, too.
    """

    cos: Tensor
    sin: Tensor
    queries: tuple[Tensor, Tensor] | None = None
    values_too: bool = False

    def select(self, selected: Selected) -> Rotation:
        """Only the selected tokens ask."""
        return replace(self, queries=(selected.queries_of(self.cos), selected.queries_of(self.sin)))

    def rotate(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Both rotated."""
        cos, sin = (self.cos, self.sin) if self.queries is None else self.queries
        return rotated(query, cos, sin), rotated(key, self.cos, self.sin)

    def rotate_values(self, value: Tensor) -> Tensor:
        """Rotated as the keys, or unchanged."""
        return rotated(value, self.cos, self.sin) if self.values_too else value


def frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """The angle per position of each pair of columns, base^(-2k/W): (W/2,), for heads of width W."""
    return 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32, device=device) / width)


def rotation(
    position_ids: Tensor, width: int, base: float, scaling: LinearScaling | LlamaScaling | None = None, *, values: bool = False
) -> Rotation:
    """The rotation of positions (B or 1, L): pair k of W/2 is rotated by position / base^(2k/W), or by less with `scaling`.

    Differs: the paper pairs neighbouring columns; here halves are paired, as in transformers, which is the same up to an
    order of the columns.
    """
    return rotation_by(position_ids, scaled(frequencies(width, base, position_ids.device), scaling), values=values)


def rotation_by(position_ids: Tensor, per_position: Tensor, *, values: bool = False) -> Rotation:
    """The same with the angles per position (W/2,)."""
    angle = position_ids[:, None, :, None].float() * per_position.float()
    return Rotation(angle.cos(), angle.sin(), values_too=values)


class FrequencyTable(nn.Module):
    """The angles per position as part of a checkpoint: the buffer `frequencies` (W/2,), which is not trained."""

    def __init__(self, width: int, base: float) -> None:
        super().__init__()
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies(width, base))

    def forward(self) -> Tensor:
        """(W/2,)."""
        return self.frequencies
