"""Choose the next token: greedy, temperature, top-k, top-p; random numbers come from outside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.errors import UserError


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    `temperature` 0 takes the most probable token. Otherwise scores are divided by it, then only the `top_k` most probable
    tokens are kept, then the smallest set of them whose probability reaches `top_p`, the token that crosses included
    (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020, §3.1).
    Differs: GPT-2's own code leaves out the token that crosses.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise UserError(f"temperature {self.temperature}: expected 0 (always the most probable token) or more.")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top-k {self.top_k}: expected at least 1.")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise UserError(f"top-p {self.top_p}: expected a probability above 0 and up to 1.")

    @property
    def greedy(self) -> bool:
        """Whether no random number matters."""
        return self.temperature == 0.0 or self.top_k == 1

    def choose(self, scores: Tensor, uniform: Tensor) -> Tensor:
        """One token per row (B,) from scores (B, V); `uniform` (B,) are the rows' random numbers in [0, 1)."""
        if self.greedy:
            return scores.argmax(-1)
        kept = scores.shape[-1] if self.top_k is None else min(self.top_k, scores.shape[-1])
        best = (scores.double() / self.temperature).topk(kept, dim=-1)  # descending, so the nucleus is a prefix
        cumulative = best.values.softmax(-1).cumsum(-1)
        if self.top_p is None:
            mass = cumulative[:, -1]
        else:
            last = (cumulative < self.top_p).sum(-1).clamp(max=kept - 1)
            mass = cumulative.gather(-1, last[:, None])[:, 0]
        point = (uniform.double() * mass)[:, None]
        rank = torch.searchsorted(cumulative, point, right=True).clamp(max=kept - 1)
        return best.indices.gather(-1, rank)[:, 0]
