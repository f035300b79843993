"""The clock of a run: seed, step, row and share as tensors, which layers read when they draw random numbers."""

from __future__ import annotations

import torch
from torch import nn


class Clock:
    """Seed, step, first row of the micro-batch and share of the budget spent.

    Four 0-dim tensors that are filled in place, so a compiled or captured graph sees new values without recompiling.
    `first_row` counts over all ranks and micro-batches of the step: a row draws the same numbers in any micro-batch.
    """

    def __init__(self, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.numbers = (seed, 0, 0)  # seed, step and first row once more, for what cannot read a tensor without waiting
        self.seed = torch.tensor(seed, dtype=torch.int64, device=device)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.first_row = torch.zeros((), dtype=torch.int64, device=device)
        self.share = torch.zeros((), dtype=torch.float32, device=device)

    def set(
        self, *, seed: int | None = None, step: int | None = None, first_row: int | None = None, share: float | None = None
    ) -> None:
        """Fill in place whatever is given."""
        numbers = (seed, step, first_row)
        first, second, third = (current if new is None else new for current, new in zip(self.numbers, numbers, strict=True))
        self.numbers = (first, second, third)
        for tensor, number in zip((self.seed, self.step, self.first_row, self.share), (*numbers, share), strict=True):
            if number is not None:
                tensor.fill_(number)

    def to(self, device: torch.device | str) -> Clock:
        """Move this clock; everything that holds it sees it move."""
        self.seed, self.step = self.seed.to(device), self.step.to(device)
        self.first_row, self.share = self.first_row.to(device), self.share.to(device)
        return self


def clock_of(network: nn.Module) -> Clock | None:
    """The clock that the modules of a network read; None if they read none."""
    return next((value for module in network.modules() for value in vars(module).values() if isinstance(value, Clock)), None)
