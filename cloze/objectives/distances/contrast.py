"""Distinguish the key of a query from the keys of the other examples of the step (InfoNCE)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Count, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import uniform_by_row
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, StepObjective
from cloze.registry import Given, register

_FACTOR = 0x2545F4914F6CDD1D  # odd: multiplying 64-bit words by it is one to one


@register("objective", "contrast")
class Contrast(StepObjective):
    """The noise-contrastive bound on mutual information (van den Oord et al., 2018, eq. 4; InfoWord: Kong et al., 2020).

    `query` and `key` are summaries (E, D); example i's query belongs to its own key, and the keys of the other examples of
    the step are the negatives, except those with the same tokens as its own (`tokens` of the pass's view). The
    score is the dot product divided by `temperature`; `normalise` makes it a cosine. `project` first maps queries and keys, each
    by its own matrix, to that width. With `wrong` each example also has a text that is wrong for it, of summaries `wrong` (E, D),
    and the wrong ones of all examples are further negatives (supervised SimCSE: Gao et al., 2021, eq. 5). With `negatives`
    only so many keys of other examples are negatives of a query, drawn again in every step, without repetition (DSSM: Huang
    et al., 2013, §3.3). Metrics: `correct`. Parameters: `head.query.*`, `head.key.*` with `project`.

    The loss does not depend on how a step is divided into micro-batches and between processes (`scope: step`); the held-out loss
    uses the negatives of a micro-batch.
    """

    head: nn.ModuleDict

    def __init__(
        self, *, project: Width | None = None, temperature: Positive = 1.0, normalise: bool = False, wrong: bool = False,
        negatives: Count | None = None, width: Given[int], clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise RecipeError(f"contrast.temperature: got {temperature}, expected a number above 0.")
        self.takes, self.optional = frozenset({"tokens"}), frozenset({"block"})
        self.reads = ("query", "key", "wrong") if wrong else ("query", "key")
        self.least_rows = 1 if wrong else 2
        self.temperature, self.width = temperature, project or width
        self.normalise, self.negatives, self.clock = normalise, negatives, clock or Clock()
        projections = {} if project is None else {name: dense(width, project) for name in ("query", "key")}
        self.head = nn.ModuleDict(projections)

    def count(self, batch: Batch) -> Tensor:
        """The number of examples."""
        return _firsts(batch["tokens"], batch.get("block")).sum(dtype=torch.float32)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The maps, and the products of every query with every key."""
        rows = int(_firsts(batch["tokens"], batch.get("block")).sum())
        counted.add(rows, self.head)
        counted.add_row_products(rows * rows * self.width * (len(self.reads) - 1))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(E, E): each query with every key; minus infinity where another example has the same tokens as the query's own. With
        `wrong` (E, 2E): then with every wrong text.
        """
        return self._products(self.kept(states, batch))

    def kept(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """What the other examples of the step need of these: `query`, `key` and perhaps `wrong` (E, D), and `known` (E,), the
        keys' fingerprints."""
        vectors = self.vectors(states)
        return {**vectors, "known": fingerprints(batch["tokens"], batch.get("block"), len(vectors["key"]))}

    def vectors(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What is multiplied: `query`, `key` and perhaps `wrong` (E, D), mapped, and with `normalise` of length 1."""
        return {name: self._mapped(name, states[name]) for name in self.reads}

    def compare(self, rows: Mapping[str, Tensor]) -> Loss:
        """The sum of the losses of the examples that `kept` was called for."""
        return _loss_of(self._products(rows))

    def _products(self, rows: Mapping[str, Tensor]) -> Tensor:
        scores = rows["query"] @ rows["key"].t() / self.temperature
        prints = rows["known"]
        # (E, E): another example with the same tokens.
        same = (prints[:, None] == prints) & ~torch.eye(len(prints), dtype=torch.bool, device=prints.device)
        scores = scores.masked_fill(same, float("-inf"))
        scores = self._sampled(scores)
        return torch.cat([scores, rows["query"] @ rows["wrong"].t() / self.temperature], dim=1) if "wrong" in rows else scores

    def _sampled(self, scores: Tensor) -> Tensor:
        """Scores (E, E) of which each row keeps its own key and `negatives` of the others, all if there are fewer."""
        if self.negatives is None:
            return scores
        count = len(scores)
        numbers = torch.arange(count, device=scores.device)
        # the clock counts from the first row of a micro-batch, the rows here from that of the step
        rows = numbers.repeat_interleave(count) - self.clock.first_row
        uniform = uniform_by_row(self.clock, "negatives", rows, numbers.repeat(count))
        diagonal = torch.eye(count, dtype=torch.bool, device=scores.device)
        uniform = uniform.view(count, count).masked_fill(diagonal | scores.isneginf(), -1.0)
        drawn = uniform.topk(min(self.negatives, count), dim=1)
        compared = diagonal.scatter(1, drawn.indices, drawn.values >= 0) | diagonal
        return scores.masked_fill(~compared, float("-inf"))

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of cross-entropies over the keys."""
        return _loss_of(scores)

    def _mapped(self, name: str, x: Tensor) -> Tensor:
        mapped = "key" if name == "wrong" else name
        if mapped in self.head:
            x = self.head[mapped](x)
        return F.normalize(x, dim=-1) if self.normalise else x


def _loss_of(scores: Tensor) -> Loss:
    total, correct = cross_entropy_sum(scores, torch.arange(len(scores), device=scores.device), None)
    return Loss(total, {"correct": correct})


def fingerprints(tokens: Tensor, block: Tensor | None, count: int) -> Tensor:
    """One number for each of `count` examples of tokens (B, L), in order: equal for equal sequences of tokens, else different.

    Differs: two different sequences have the same number with a probability of about 2^-64.
    """
    inside = torch.ones_like(tokens, dtype=torch.bool) if block is None else block > 0
    first = _firsts(tokens, block).flatten()  # (B L,), as all that follows
    example, flat = (first.cumsum(0) - 1).clamp(min=0), torch.arange(len(first), device=tokens.device)
    start = torch.where(first, flat, 0).cummax(0).values  # of the example
    word = (tokens.flatten().long() + 1) * _FACTOR
    word = (word ^ (word >> 29)) + (flat - start + 1) * _FACTOR  # a token counts together with its place
    word = (word ^ (word >> 32)) * _FACTOR
    word = torch.where(inside.flatten(), word ^ (word >> 29), 0)  # padding belongs to no example
    return torch.zeros(count, dtype=torch.int64, device=tokens.device).index_add(0, example, word)


def _firsts(tokens: Tensor, block: Tensor | None) -> Tensor:
    """Where an example begins, (B, L)."""
    first = torch.zeros_like(tokens, dtype=torch.bool)
    first[:, :1] = True
    if block is not None:
        first[:, 1:] = block[:, 1:] != block[:, :-1]
        first &= block > 0
    return first
