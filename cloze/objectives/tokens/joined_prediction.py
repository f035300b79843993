"""Predict tokens of two vocabularies that share one table, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.errors import RecipeError
from cloze.objectives.cross_entropy import vocabulary_loss
from cloze.objectives.heads import VocabularyHead
from cloze.objectives.objective import Loss
from cloze.objectives.tokens.token_prediction import TokenPrediction
from cloze.registry import Given, register


class JoinedPrediction(TokenPrediction):
    """`TokenPrediction` with a softmax for each of two vocabularies: the ids below `first`, and all others.

    A target is predicted among the ids of its own vocabulary.
    """

    kind = None
    likelihood = False  # of ids of two tokenizers: how often ids occur in the text is no baseline
    training_only = True
    takes_over = frozenset({"token_prediction"})

    def __init__(self, head: VocabularyHead, *, set: str, first: int) -> None:
        super().__init__(head, set=set)
        self.first = first

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The same from scores of all ids."""
        ids = torch.arange(scores.shape[1], device=scores.device)
        mask = (ids < self.first) != (batch[self.targets_field].long() < self.first)[:, None]
        return super().loss(scores.masked_fill(mask, float("-inf")), batch)

    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> Loss:
        """Loss and metrics: those of both vocabularies together."""
        rows, table, bias = self.product(states, batch)
        targets, weights = batch[self.targets_field].long(), self.loss_weights(batch)
        of_text = targets < self.first
        totals, right = [], []
        for mask, part in ((of_text, slice(0, self.first)), (~of_text, slice(self.first, None))):
            if not len(table[part]):
                continue
            at = mask.nonzero()[:, 0]
            total, correct = vocabulary_loss(
                rows[at], table[part], None if bias is None else bias[part], targets[at] - part.start,
                None if weights is None else weights[at],
            )
            totals.append(total)
            right.append(correct)
        return Loss(torch.stack(totals).sum(), {"correct": torch.stack(right).sum()})


@register("objective", "joined_prediction")
def joined_prediction(
    *, transform: Literal["gelu", "gelu_tanh", "relu"] | None = None, bias: bool = True, norm_epsilon: Positive = 1e-12,
    set: str = "main", width: Given[int], vocab_size: Given[int], table: Given[nn.Embedding | None] = None,
) -> JoinedPrediction:
    """`token_prediction`, tied to the table of a network with the change `join_vocabulary`: a softmax for each vocabulary (Zhao
    et al., 2019; their patent US 11797862, claim 8).

    A target that is an id of the text's tokenizer is predicted among those ids, any other among those of the network's own
    tokenizer. From a checkpoint it takes the head of a `token_prediction`.

    Parameters: `head.dense.*`, `head.norm.*`, `head.bias`.
    """
    if table is None:
        raise RecipeError("joined_prediction: the network that it reads has no table of tokens, which its scores come from.")
    head = VocabularyHead(
        width=width, vocab_size=table.num_embeddings, transform=transform, table=table, bias=bias, norm_epsilon=norm_epsilon
    )
    return JoinedPrediction(head, set=set, first=vocab_size)
