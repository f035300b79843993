"""Weighted means over the depth of a network: every residual connection may read those before it (DenseFormer)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DepthMean(nn.Module):
    """The sum of so many states, each times a learned number (Pagliardini et al., 2024, §3; here after every residual connection,
    as in ltgoslo/gpt-bert, `DWAModules`).

    Parameter: `weight` (states,), at first 1 for the last state and 0 for the others, so that nothing is mixed.
    """

    def __init__(self, states: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(states))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing is mixed."""
        with torch.no_grad():
            self.weight.zero_()
            self.weight[-1:].fill_(1.0)

    def forward(self, states: Sequence[Tensor]) -> Tensor:
        """States of one shape, (B, L, D) or (M, D), the last of them the newest, to one of that shape."""
        weights = self.weight.to(states[-1].dtype)
        mixed = states[0] * weights[0]
        for number, state in enumerate(states[1:], 1):
            mixed = mixed + state * weights[number]
        return mixed
