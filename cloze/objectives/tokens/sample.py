"""ELECTRA's rewriter: replace masked tokens by samples of a generator, and make replaced or original the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.networks.blocks.dropout import uniform_by_row
from cloze.networks.clock import Clock
from cloze.objectives.rewriter import Rewriter
from cloze.registry import Given, register


@register("rewriter", "sample")
class Sample(Rewriter):
    """Draw one sample per position from the scores of an earlier pass's head (Clark et al., 2020, §2), without gradient.

    Every position that is not padding gets a target: 1 where the sample differs from the original, else 0.
    Differs: a sample is drawn by inverting the distribution at one uniform number per position, not with Gumbel noise for
    the whole vocabulary: the same distribution with fewer random numbers. Positions are distinct, even where
    the exercise draws with replacement, so the averaged duplicates of the authors' code cannot occur (their issue 41).
    """

    replaces: ClassVar[bool] = True

    def __init__(self, *, set: str = "main", temperature: Positive = 1.0, clock: Given[Clock]) -> None:
        super().__init__()
        self.set = set
        self.temperature = temperature
        self.clock = clock
        self.reads = ("scores",)
        self.targets_field, self.positions_field, self.weights_field = f"targets/{set}", f"positions/{set}", f"weights/{set}"
        self.takes = frozenset({"tokens", self.targets_field, self.positions_field})
        self.optional = frozenset({self.weights_field})
        self.gives = frozenset({"tokens", "targets/replaced"})

    @torch.no_grad()
    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """`scores` (M, V) to `tokens` (B, L) and `targets/replaced` (B*L,)."""
        tokens, positions = batch["tokens"], batch[self.positions_field].long()
        original = batch[self.targets_field].to(tokens.dtype)
        drawn = self.draw(states["scores"], positions, tokens.shape[1]).to(tokens.dtype)
        if self.weights_field in batch:  # targets of weight 0 are padding: they write beyond the end
            positions = torch.where(batch[self.weights_field] > 0, positions, tokens.numel())
        spare = tokens.new_zeros(1)
        inputs = torch.cat([tokens.flatten(), spare]).index_copy(0, positions, drawn)[:-1]
        replaced = torch.zeros(tokens.numel() + 1, dtype=torch.int64, device=tokens.device)
        replaced = replaced.index_copy(0, positions, (drawn != original).long())[:-1]
        return {"tokens": inputs.view_as(tokens), "targets/replaced": replaced}

    def draw(self, scores: Tensor, positions: Tensor, length: int) -> Tensor:
        """One class per row of scores (M, V), addressed by the clock and the position: (M,)."""
        rows = torch.div(positions, length, rounding_mode="floor")
        uniform = uniform_by_row(self.clock, "sample", rows, positions % length)
        summed = torch.softmax(scores.float() / self.temperature, dim=-1).cumsum_(dim=-1)
        thresholds = uniform[:, None] * summed[:, -1:]
        return torch.searchsorted(summed, thresholds, right=True).squeeze(1).clamp_(max=scores.shape[-1] - 1)
