"""The vector of a text, for others to compare: a head whose scores are vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import Count, Width
from cloze.errors import RecipeError
from cloze.objectives.classify import means
from cloze.objectives.heads import dense
from cloze.objectives.objective import SEQUENCES, Loss, Objective
from cloze.registry import Given, register


def largest(states: Tensor, batch: Batch) -> Tensor:
    """The largest number of each column over the tokens of a row that are not padding: (B, L, D) to (B, D)."""
    if "block" not in batch:
        return states.amax(1)
    return states.masked_fill((batch["block"] == 0)[:, :, None], float("-inf")).amax(1)


#: How the states of a text become one vector; None: the network's summary of it.
POOLS: Mapping[str, Callable[[Tensor, Batch], Tensor] | None] = MappingProxyType(
    {"mean": means, "max": largest, "summary": None}
)


@register("objective", "embedding")
class Embedding(Objective):
    """One vector for each text, (E, D): the `mean` of its tokens' states or their largest numbers (`max`), special tokens
    included, or its `summary`.

    It has no loss of its own, hence weight 0: `contrast` reads it as a state, `read: {query: query.embedding, key:
    passage.embedding}`. `project` maps vectors to that width (`same`: to the width that they have), followed by the `activation`;
    `normalise` scales them to length 1, so that products are cosines. The mean over all tokens is that of Sentence-BERT (Reimers
    and Gurevych, 2019, §3). `length`: how many tokens of a text are read once trained; the folder of a run says so to
    sentence-transformers. Parameters: `head.*` with `project`.
    """

    of_records = True  # it is about whole records and needs no column of theirs

    def __init__(
        self, *, reading: Literal["summary", "mean", "max"] = "mean", project: Width | Literal["same"] | None = None,
        activation: Literal["tanh"] | None = None, bias: bool = True, normalise: bool = True, length: Count | None = None,
        width: Given[int],
    ) -> None:
        super().__init__()
        if project is None and (activation is not None or not bias):
            raise RecipeError("embedding.project: an activation and a bias belong to a map; write `project: same`, or a width.")
        self.takes, self.optional = frozenset(), SEQUENCES | {"block"}
        self.pool, self.normalise, self.length = POOLS[reading], normalise, length
        self.reads = ("summary",) if self.pool is None else ("hidden",)
        self.activation = activation
        self.width = width if project is None or project == "same" else int(project)
        self.head: nn.Module = nn.Identity() if project is None else dense(width, self.width, bias=bias)

    def count(self, batch: Batch) -> Tensor:
        """The number of rows."""
        return torch.tensor(float(len(sequence(batch))))

    def head_rows(self, batch: Batch) -> float:
        """One for every text."""
        return len(sequence(batch))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The vectors (E, D)."""
        state = states[self.reads[0]]
        vectors = self.head(state if self.pool is None else self.pool(state, batch))
        vectors = vectors if self.activation is None else torch.tanh(vectors)
        return F.normalize(vectors, dim=-1) if self.normalise else vectors

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """Zero, connected to the parameters."""
        return Loss(scores.sum() * 0.0, {})

