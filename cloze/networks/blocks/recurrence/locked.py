"""Dropouts of recurrent networks, one mask for all steps, rows or whole words, and noise. Drawn by address, like `Dropout`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout, Positions, drop, uniform_by_row
from cloze.networks.clock import Clock


class LockedDropout(Dropout):
    """(B, L, D): each row drops the same numbers at every step (Gal and Ghahramani, 2016; Merity et al., 2018, §4.1).

    Of attention probabilities every query drops the same keys, head by head (the noise shapes of Mesh TensorFlow's Transformer).
    """

    def forward(self, x: Tensor, positions: Positions | None = None) -> Tensor:
        """Drop in (B, L, D), or in rows (M, D) that were gathered from `positions`."""
        if not self.active:
            return x
        if positions is not None:
            return super().forward(x, positions)
        return x * self.mask((x.shape[0], x.shape[2]), x)[:, None]

    def keep_hidden(self, shape: tuple[int, ...], device: torch.device, positions: Positions | None = None) -> Tensor:
        """Which numbers stay, as `Dropout` has it: alike at all positions of a row."""
        if positions is not None:
            rows = int(positions.row.max()) + 1 if len(positions.row) else 0
            return super().keep_hidden((rows, shape[-1]), device)[positions.row]
        if len(shape) < 3:
            return super().keep_hidden(shape, device)
        return super().keep_hidden((shape[0], shape[-1]), device)[:, None].expand(shape).contiguous()

    def keep_scores(
        self, batch: int, heads: int, queries: int, keys: int, device: torch.device, columns: Tensor | None = None
    ) -> Tensor:
        """Which attention probabilities (B, H, Lq, Lk) stay: alike for all queries."""
        queries = queries if columns is None else columns.shape[1]
        return super().keep_scores(batch, heads, 1, keys, device).expand(batch, heads, queries, keys).contiguous()

    def for_kernel(self, value: Tensor) -> tuple[Tensor, float]:
        """Values without those of the dropped keys, which is the same as dropping probabilities; no rate is left."""
        if not self.active:
            return value, 0.0
        batch, heads, keys, _ = value.shape
        mask = super().keep_scores(batch, heads, 1, keys, value.device).transpose(-2, -1)
        return drop(value, mask, self.scale), 0.0

    def mask(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """What (B, D) is multiplied with: 0 or the scale, in the dtype of `like`."""
        return drop(torch.ones(shape, dtype=like.dtype, device=like.device), self.keep_hidden(shape, like.device), self.scale)


class WeightDropout(Dropout):
    """Drops numbers of a weight (R, D): one mask for every row of the step, however the step is divided into micro-batches."""

    def forward(self, x: Tensor, positions: object = None) -> Tensor:
        """The weight with some of its numbers dropped, the others scaled; the weight itself when nothing is dropped."""
        if not self.active:
            return x
        return drop(x, self.keep_hidden(x.shape, x.device), self.scale)

    def _first_row(self) -> Tensor:
        return torch.zeros_like(self.clock.first_row)


class WordDropout(WeightDropout):
    """Drops whole rows of a table: a word is zero wherever it stands in the step (Gal and Ghahramani, 2016, §4.2)."""

    def look_up(self, tokens: Tensor, table: Tensor) -> Tensor:
        """Vectors of ids (B, L) from a table (V, D), some words dropped; the table itself stays whole for what ties to it."""
        x = F.embedding(tokens, table)
        if not self.active:
            return x
        mask = self.keep_hidden((1, len(table)), table.device)[0]
        scales = drop(torch.ones(len(table), device=table.device, dtype=table.dtype), mask, self.scale)
        return x * scales[tokens][..., None]


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
        index = torch.arange(numbers, device=x.device).repeat(len(x))
        radius = (-2 * torch.log1p(-uniform_by_row(self.clock, f"{self.name}.radius", row, index))).sqrt()
        angle = 2 * math.pi * uniform_by_row(self.clock, f"{self.name}.angle", row, index)
        return x + (self.deviation * radius * torch.cos(angle)).view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """The deviation, for `print(network)`."""
        return f"deviation={self.deviation}"
