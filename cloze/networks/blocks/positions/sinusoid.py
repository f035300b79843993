"""Tables of sines and cosines that are never trained (Vaswani et al., 2017, §3.5)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(rows: int, width: int, device: torch.device | str | None = None) -> Tensor:
    """float32 (rows, width): sin(p / 10000^(2k/width)) in column 2k and the cosine of the same in column 2k + 1.

    Computed in float64, as the tables of XLM and NEZHA are. Differs: the paper's own code has all sines first.
    """
    angle = _angles(rows, width, device)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width].float()


def sinusoids_in_halves(rows: int, width: int, device: torch.device | str | None = None) -> Tensor:
    """float32 (rows, width): the same numbers, all sines first, then all cosines."""
    angle = _angles(rows, width, device)
    return torch.cat([angle.sin(), angle.cos()[:, : width // 2]], dim=-1).float()


def fairseq_sinusoids(rows: int, width: int, device: torch.device | str | None = None) -> Tensor:
    """float32 (rows, width): all sines, then all cosines of p / 10000^(k/(h - 1)) for h = width // 2 waves k; an odd last column
    is 0 (facebookresearch/fairseq, `SinusoidalPositionalEmbedding`, which follows tensor2tensor).

    Computed in float32, as there.
    """
    waves = width // 2
    rate = torch.exp(torch.arange(waves, device=device).float() * -(math.log(10000.0) / max(1, waves - 1)))
    angle = torch.arange(rows, device=device).float()[:, None] * rate
    return torch.cat([angle.sin(), angle.cos(), angle.new_zeros(rows, width % 2)], dim=-1)


def _angles(rows: int, width: int, device: torch.device | str | None) -> Tensor:
    """p / 10000^(2k/width) in float64, (rows, width/2 rounded up)."""
    position = torch.arange(rows, dtype=torch.float64, device=device)[:, None]
    pair = torch.arange((width + 1) // 2, dtype=torch.float64, device=device)
    return position / 10000.0 ** (2 * pair / width)


LAYOUTS = {"interleaved": sinusoids, "halves": sinusoids_in_halves, "tensor2tensor": fairseq_sinusoids}


class FixedTable(nn.Module):
    """A table of positions that holds still: `weight` (rows, width) is a buffer, kept in the state with the parameters. Its first
    row is that of position `first`."""

    weight: Tensor

    def __init__(self, rows: int, width: int, layout: str = "interleaved", first: int = 0) -> None:
        super().__init__()
        self.register_buffer("weight", LAYOUTS[layout](first + rows, width)[first:])
