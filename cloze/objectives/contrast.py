"""Tell the one key that belongs to a query from those of the other examples in the batch (InfoNCE)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive, Width
from cloze.errors import RecipeError
from cloze.networks.cost import TRAINED, maps
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, Objective
from cloze.registry import Given, register

_FACTOR = 0x2545F4914F6CDD1D  # odd: multiplying 64-bit words by it is one to one


@register("objective", "contrast")
class Contrast(Objective):
    """The noise-contrastive bound on mutual information (van den Oord et al., 2018, eq. 4; InfoWord: Kong et al., 2020).

    `query` and `key` are summaries (E, D); example i's query belongs to its own key, and the keys of the other examples of
    the micro-batch are the negatives, except those made of the same tokens as its own (`tokens` of the pass's view). The
    score is the product, divided by `temperature`; `normalise` makes it a cosine. `project` maps queries and keys, each by
    a matrix of its own, to that width first. Metrics: `correct`. Parameters: `head.query.*`, `head.key.*` with `project`.

    Differs: negatives come from this rank's micro-batch, and so the loss depends on how a step is divided (`scope: batch`).
    """

    scope: Literal["row", "batch"] = "batch"
    head: nn.ModuleDict

    def __init__(
        self, *, project: Width | None = None, temperature: Positive = 1.0, normalise: bool = False, width: Given[int]
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise RecipeError(f"contrast.temperature: got {temperature}, expected a number above 0.")
        self.takes, self.optional = frozenset({"tokens"}), frozenset({"block"})
        self.reads = ("query", "key")
        self.temperature, self.width = temperature, project or width
        self.normalise = normalise
        made = {} if project is None else {name: dense(width, project) for name in self.reads}
        self.head = nn.ModuleDict(made)

    def count(self, batch: Batch) -> Tensor:
        """The number of examples."""
        return _firsts(batch["tokens"], batch.get("block")).sum(dtype=torch.float32)

    def flops(self, batch: Batch) -> float:
        """Every query meets every key."""
        rows = int(_firsts(batch["tokens"], batch.get("block")).sum())
        return TRAINED * rows * (maps(self.head) + rows * self.width)

    def scores(self, readings: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(E, E): each query with every key; minus infinity where another example's key has the tokens of its own."""
        query, key = (self._mapped(name, readings[name]) for name in self.reads)
        scores = query @ key.t() / self.temperature
        known = fingerprints(batch["tokens"], batch.get("block"))
        same = (known[:, None] == known) & ~torch.eye(len(known), dtype=torch.bool, device=known.device)
        return scores.masked_fill(same, float("-inf"))

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of cross-entropies over the keys."""
        total, correct = cross_entropy_sum(scores, torch.arange(len(scores), device=scores.device), None)
        return Loss(total, {"correct": correct})

    def _mapped(self, name: str, x: Tensor) -> Tensor:
        if name in self.head:
            x = self.head[name](x)
        return F.normalize(x, dim=-1) if self.normalise else x


def fingerprints(tokens: Tensor, block: Tensor | None) -> Tensor:
    """One number per example of tokens (B, L), in order, (E,): equal for equal sequences of tokens, else different.

    Differs: two different sequences have the same number with a probability of about 2^-64.
    """
    inside = torch.ones_like(tokens, dtype=torch.bool) if block is None else block > 0
    first = _firsts(tokens, block).flatten()
    starts = first.nonzero().view(-1)
    flat = inside.flatten().nonzero().view(-1)
    example = (first.cumsum(0) - 1)[flat]
    word = (tokens.flatten()[flat].long() + 1) * _FACTOR
    word = (word ^ (word >> 29)) + (flat - starts[example] + 1) * _FACTOR  # a token counts together with its place
    word = (word ^ (word >> 32)) * _FACTOR
    return torch.zeros(len(starts), dtype=torch.int64, device=tokens.device).index_add(0, example, word ^ (word >> 29))


def _firsts(tokens: Tensor, block: Tensor | None) -> Tensor:
    """Where an example begins, (B, L)."""
    first = torch.zeros_like(tokens, dtype=torch.bool)
    first[:, :1] = True
    if block is not None:
        first[:, 1:] = block[:, 1:] != block[:, :-1]
        first &= block > 0
    return first
