"""The vector of a text, for others to compare: a head whose scores are vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import BelowOne, Count, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
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


class NormedMap(nn.Module):
    """dense, tanh, project, norm, dropout: (E, D) to (E, `outputs`). Parameters: `dense.*`, `project.*`, `norm.*`."""

    def __init__(self, width: int, outputs: int, *, epsilon: float, dropout: Dropout) -> None:
        super().__init__()
        self.dense, self.project = dense(width, width), dense(width, outputs)
        self.norm, self.dropout = nn.LayerNorm(outputs, eps=epsilon), dropout

    def forward(self, x: Tensor) -> Tensor:
        """(E, D) to (E, `outputs`)."""
        vectors: Tensor = self.dropout(self.norm(self.project(torch.tanh(self.dense(x)))))
        return vectors


@register("objective", "embedding")
class Embedding(Objective):
    """One vector for each text, (E, D): the `mean` of its tokens' states or their largest numbers (`max`), special tokens
    included, or its `summary`.

    It has no loss of its own, hence weight 0: `contrast` reads it as a state, `read: {query: query.embedding, key:
    passage.embedding}`. `project` maps vectors to that width (`same`: to the width that they have), followed by the
    `activation`; the map starts as in `relation_prediction` (`initial`). `normalise` scales vectors to length 1, so that products
    are cosines. With `norm_epsilon`, ORQA's vectors (Lee et al., 2019; `module_fn` in orqa/models/ict_model.py): a dense map with
    tanh comes before `project`, a layer norm and `dropout` after it. The mean over all tokens is that of Sentence-BERT (Reimers
    and Gurevych, 2019, §3). `length`: how many tokens of a text are read once trained; the folder of a run says so to
    sentence-transformers. Parameters: `head.*` with
    `project`; with a norm, those of `NormedMap`.
    """

    of_records = True  # it is about whole records and needs no column of theirs

    def __init__(
        self, *, reading: Literal["summary", "mean", "max"] = "mean", project: Width | Literal["same"] | None = None,
        activation: Literal["tanh"] | None = None, bias: bool = True, norm_epsilon: Positive | None = None,
        dropout: BelowOne | None = None, normalise: bool = True, length: Count | None = None, initial: Law = "truncated",
        width: Given[int], clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__()
        if project is None and (activation is not None or not bias or norm_epsilon is not None):
            raise RecipeError(
                "embedding.project: an activation, a bias and a norm belong to a map; write `project: same`, or a width."
            )
        if norm_epsilon is None and dropout is not None:
            raise RecipeError("embedding.dropout: follows a norm. Write norm_epsilon, such as 1e-12, or omit dropout.")
        if norm_epsilon is not None and (activation is not None or not bias):
            raise RecipeError("embedding.norm_epsilon: a map with a norm has a bias and no activation. Omit activation and bias.")
        self.takes, self.optional = frozenset(), SEQUENCES | {"block"}
        self.pool, self.normalise, self.length = POOLS[reading], normalise, length
        self.reads = ("summary",) if self.pool is None else ("hidden",)
        self.activation = activation
        self.width = width if project is None or project == "same" else int(project)
        self.head: nn.Module = nn.Identity()
        if project is not None:
            self.head = dense(width, self.width, bias=bias, initial=initial)
        if norm_epsilon is not None:
            self.head = NormedMap(width, self.width, epsilon=norm_epsilon, dropout=Dropout(dropout or 0.0, clock or Clock()))

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

