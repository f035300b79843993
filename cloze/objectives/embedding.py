"""The vector of a text, for others to compare: a head whose scores are vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import Width
from cloze.networks.cost import Operations
from cloze.objectives.classify import means
from cloze.objectives.heads import dense
from cloze.objectives.objective import SEQUENCES, Loss, Objective
from cloze.registry import Given, register


@register("objective", "embedding")
class Embedding(Objective):
    """One vector for each text, (E, D): the mean of its tokens' states, special tokens included, or its summary.

    It has no loss of its own, hence weight 0: `contrast` reads it as a state, `read: {query: query.embedding, key:
    passage.embedding}`. `project` maps vectors to that width, `normalise` scales them to length 1, so that products are cosines.
    The mean over all tokens is that of Sentence-BERT (Reimers and Gurevych, 2019, §3). Parameters: `head.*` with `project`.
    """

    of_records = True  # it is about whole records and needs no column of theirs

    def __init__(
        self, *, reading: Literal["summary", "mean"] = "mean", project: Width | None = None, normalise: bool = True,
        width: Given[int],
    ) -> None:
        super().__init__()
        self.takes, self.optional = frozenset(), SEQUENCES | {"block"}
        self.mean, self.normalise = reading == "mean", normalise
        self.reads = ("hidden",) if self.mean else ("summary",)
        self.width = project or width
        self.head: nn.Module = nn.Identity() if project is None else dense(width, project)

    def count(self, batch: Batch) -> Tensor:
        """The number of rows."""
        return torch.tensor(float(len(sequence(batch))))

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The map, for every row."""
        counted.maps(len(sequence(batch)), self.head)

    def scores(self, readings: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The vectors (E, D)."""
        state = readings[self.reads[0]]
        vectors = self.head(means(state, batch) if self.mean else state)
        return F.normalize(vectors, dim=-1) if self.normalise else vectors

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """Zero, connected to the parameters."""
        return Loss(scores.sum() * 0.0, {})

