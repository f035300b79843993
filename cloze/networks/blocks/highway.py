"""Highway layers: a gate decides, number by number, how much of its input a layer changes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Highway(nn.Module):
    """y = g relu(W_H x + b_H) + (1 - g) x with g = σ(W_T x + b_T), (…, D) to (…, D) (Srivastava et al., 2015).

    The gate's bias begins at `gate_bias`: at -2 most of the input passes unchanged. Parameters: `change.*`, `gate.*`.
    """

    def __init__(self, width: int, *, gate_bias: float = -2.0) -> None:
        super().__init__()
        self.gate_bias = gate_bias
        self.change = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.reset_parameters()

    def reset_parameters(self, bound: float | None = None) -> None:
        """Draw both maps from a normal distribution of deviation 1 / √D, or all from ±`bound`; the gate begins at its bias."""
        if bound is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -bound, bound)
            with torch.no_grad():
                self.gate.bias.add_(self.gate_bias)
            return
        for linear in (self.change, self.gate):
            nn.init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
        nn.init.zeros_(self.change.bias)
        nn.init.constant_(self.gate.bias, self.gate_bias)

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        return torch.lerp(x, F.relu(self.change(x)).to(x.dtype), torch.sigmoid(self.gate(x)).to(x.dtype))
