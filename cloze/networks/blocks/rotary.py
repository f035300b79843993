"""Rotary positions: queries and keys are turned by angles that grow with the position (Su et al., 2021, §3.2)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Cosines and sines of the angles of each place, float32 (B or 1, 1, L, W/2), for heads of width W."""

    cos: Tensor
    sin: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """Queries or keys (B, H, L, W) turned; column k goes with column k + W/2."""
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat([first * self.cos - second * self.sin, second * self.cos + first * self.sin], dim=-1)
        return turned.to(x.dtype)


def rotation(position_ids: Tensor, width: int, base: float) -> Rotation:
    """The rotation of positions (B or 1, L): pair k of W/2 turns by position / base^(2k/W).

    Differs: the paper turns neighbouring columns; halves are turned here, as in transformers, which is the same up to an
    order of the columns.
    """
    pair = torch.arange(0, width, 2, dtype=torch.float32, device=position_ids.device)
    angle = position_ids[:, None, :, None].float() * (1.0 / base ** (pair / width))
    return Rotation(angle.cos(), angle.sin())
