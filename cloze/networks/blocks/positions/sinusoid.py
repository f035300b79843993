"""Tables of sines and cosines that are never trained (Vaswani et al., 2017, §3.5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def sinusoids(rows: int, width: int, device: torch.device | str | None = None) -> Tensor:
    """float32 (rows, width): sin(p / 10000^(2k/width)) in column 2k and the cosine of the same in column 2k + 1.

    Computed in float64, as the tables of XLM and NEZHA are. Differs: the paper's own code has all sines first.
    """
    position = torch.arange(rows, dtype=torch.float64, device=device)[:, None]
    pair = torch.arange((width + 1) // 2, dtype=torch.float64, device=device)
    angle = position / 10000.0 ** (2 * pair / width)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width].float()


class FixedTable(nn.Module):
    """A table of positions that holds still: `weight` (rows, width) is a buffer, kept in the state with the parameters."""

    weight: Tensor

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", sinusoids(rows, width))
