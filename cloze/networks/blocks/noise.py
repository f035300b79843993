"""Gaussian noise on vectors, drawn by address like dropout."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import uniform_by_row
from cloze.networks.clock import Clock


class Noise(nn.Module):
    """Adds a normal number of deviation `deviation` to every number while training; identity in eval mode, and for 0.

    What is added follows from seed, step, `name`, row and place in the row (Box and Muller, 1958), so that a step that is dealt
    into micro-batches, or gone on with after a break, adds the same. `name` tells this noise from others.
    """

    def __init__(self, deviation: float, name: str, clock: Clock) -> None:
        super().__init__()
        if deviation < 0:
            raise RecipeError(f"noise: {deviation}; expected a deviation of 0 or more.")
        self.deviation, self.name, self.clock = deviation, name, clock

    def forward(self, x: Tensor) -> Tensor:
        """(B, …) to (B, …)."""
        if not self.training or not self.deviation:
            return x
        numbers = x[0].numel()
        row = torch.arange(len(x), device=x.device).repeat_interleave(numbers)
        place = torch.arange(numbers, device=x.device).repeat(len(x))
        radius = (-2 * torch.log1p(-uniform_by_row(self.clock, f"{self.name}.radius", row, place))).sqrt()
        angle = 2 * math.pi * uniform_by_row(self.clock, f"{self.name}.angle", row, place)
        return x + (self.deviation * radius * torch.cos(angle)).view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """The deviation, for `print(network)`."""
        return f"deviation={self.deviation}"
