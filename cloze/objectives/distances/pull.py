"""Bring what a network makes of items near to what it makes of their words (SpeechBERT)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.objectives.objective import Loss, Objective, at_least_float32
from cloze.registry import Given, register


@register("objective", "pull")
class Pull(Objective):
    """The mean absolute difference of each item's state from the vector of its word, which gets no gradient (Chuang et al.,
    SpeechBERT, 2020, §3.1).

    It reads `item_hidden` and `word_vectors` (B, R, D) of the items that `links/<items>` links with a token; words that were cut
    off have none. Metric `correct`: the nearest of the batch's word vectors is that of the item's own word. It has no parameters.
    """

    likelihood = False
    training_only = True
    reads = ("item_hidden", "word_vectors")

    def __init__(self, *, items: str = "sounds", width: Given[int]) -> None:
        super().__init__()
        self.links, self.width = f"links/{items}", width
        self.takes = frozenset({self.links})
        self.head = nn.Identity()

    def _linked(self, batch: Batch) -> Tensor:
        """The flat positions of the items that have a word, (M,)."""
        return batch[self.links][:, 1].unique()

    def count(self, batch: Batch) -> Tensor:
        """The number of items that have a word."""
        return torch.tensor(float(len(self._linked(batch))))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The distance (M, M) of each item from the word of each."""
        linked = self._linked(batch)
        items, words = (at_least_float32(states[name].flatten(0, 1).index_select(0, linked)) for name in self.reads)
        return torch.cdist(items, words.detach(), p=1.0) / self.width

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum of the distances of items from their own words."""
        distances = scores.diagonal()
        correct = (distances.detach() <= scores.detach().amin(1)).sum(dtype=torch.float32) if len(distances) else distances.sum()
        return Loss(distances.sum(), {"correct": correct})
