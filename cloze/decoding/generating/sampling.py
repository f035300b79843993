"""Choose the next token: greedy, temperature, top-k, top-p, min-p, typical-p; random numbers come from outside."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.errors import UserError


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    `temperature` 0 takes the most probable token. Otherwise scores are divided by it, and each of the following, in this order,
    keeps some of the tokens that are left, whose probabilities are then scaled to sum to 1: the `top_k` most probable; the fewest
    whose probability reaches `top_p`, the token that crosses included (Holtzman et al., "The Curious Case of Neural Text
    Degeneration", 2020, §3.1); those at least `min_p` times as probable as the most probable one (Nguyen et al., "Turning Up the
    Heat: Min-p Sampling", 2024); the fewest with probability `typical_p` whose information is nearest to the entropy (Meister et
    al., "Locally Typical Sampling", 2022).
    Differs: GPT-2's own code leaves out the token that crosses `top_p`.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise UserError(f"temperature {self.temperature}: expected 0 (always the most probable token) or more.")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top-k {self.top_k}: expected at least 1.")
        for name, share in (("top-p", self.top_p), ("min-p", self.min_p), ("typical-p", self.typical_p)):
            if share is not None and not 0.0 < share <= 1.0:
                raise UserError(f"{name} {share}: expected a probability above 0 and up to 1.")

    @property
    def greedy(self) -> bool:
        """Whether no random number matters."""
        return self.temperature == 0.0 or self.top_k == 1

    def choose(self, scores: Tensor, uniform: Tensor) -> Tensor:
        """One token per row (B,) from scores (B, V); `uniform` (B,) are the rows' random numbers in [0, 1)."""
        if self.greedy:
            return scores.argmax(-1)
        probabilities, ids = self.kept(scores)
        cumulative = probabilities.cumsum(-1)
        point = (uniform.double() * cumulative[:, -1])[:, None]
        rank = torch.searchsorted(cumulative, point, right=True)
        last = probabilities.shape[1] - 1 - (probabilities > 0).flip(-1).int().argmax(-1)  # rounding may point past it
        return ids.gather(-1, rank.minimum(last[:, None]))[:, 0]

    def left(self, scores: Tensor, *, least: int = 1) -> Tensor:
        """The scores (B, V) divided by the temperature, -inf for tokens that are left out; each rule leaves at least `least`."""
        shares, ids = self.kept(scores, least=least)
        kept_scores = (scores / self.temperature).gather(-1, ids).masked_fill(shares <= 0, -torch.inf)
        return torch.full_like(scores, -torch.inf).scatter(-1, ids, kept_scores)

    def kept(self, scores: Tensor, *, least: int = 1) -> tuple[Tensor, Tensor]:
        """The probabilities (B, K) of the tokens that may be drawn, the most probable first, and their ids; 0 where left out.

        Each rule leaves at least `least` tokens.
        """
        count = scores.shape[-1] if self.top_k is None else min(max(self.top_k, least), scores.shape[-1])
        best = (scores.double() / self.temperature).topk(count, dim=-1)
        shares = best.values.softmax(-1)
        first = torch.arange(count, device=scores.device) < least
        if self.top_p is not None:
            shares = _only(shares, (shares.cumsum(-1) - shares < self.top_p) | first)
        if self.min_p is not None:
            shares = _only(shares, (shares >= self.min_p * shares[:, :1]) | first)
        if self.typical_p is not None:
            information = -shares.log()
            entropy = (shares * information.nan_to_num(posinf=0.0)).sum(-1, keepdim=True)
            order = (information - entropy).abs().argsort(dim=-1, stable=True)
            ordered = shares.gather(-1, order)
            near = (ordered.cumsum(-1) - ordered < self.typical_p) | first
            shares = _only(shares, torch.zeros_like(near).scatter(-1, order, near))
        return shares, best.indices


def _only(probabilities: Tensor, which: Tensor) -> Tensor:
    """The probabilities (B, K) of `which` tokens, as a whole; 0 for the others."""
    left = probabilities * which
    return left / left.sum(-1, keepdim=True)
