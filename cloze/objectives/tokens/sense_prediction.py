"""Predict the sense of masked words, of which only the possible senses are known (SenseBERT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.errors import RecipeError, propose
from cloze.networks.cost import Operations
from cloze.objectives.objective import SEQUENCES, Loss, TargetsAtPositions, at_least_float32
from cloze.objectives.product import Product
from cloze.registry import Given, register


def sense_losses(scores: Tensor, allowed: Tensor) -> Tensor:
    """The loss of each word, (M,), from scores (M, S) and the senses that it may have (M, S), at least one.

    -log Σ p(s) - 1/|A| Σ log p(s), both sums over the allowed senses A: one of them is right, and all are equally likely.

    >>> sense_losses(torch.zeros(1, 45), torch.arange(45)[None] < 3)  # ln 15 + ln 45
    tensor([6.5147])
    """
    log = F.log_softmax(at_least_float32(scores), dim=-1)
    log_mass = torch.logsumexp(log.masked_fill(~allowed, float("-inf")), dim=-1)
    return -log_mass - log.masked_fill(~allowed, 0.0).sum(-1) / allowed.sum(-1)


class SensePrediction(TargetsAtPositions):
    """The sum of the losses of `targets/<set>`, the ids of words, at `positions/<set>`.

    It reads the scores of a head over the vocabulary as the product that they are (`Product`): its rows (M, E) of the tokens in
    `positions/<of>`, among which those of the words are, times the vectors of senses. Metrics: `allowed`, the words whose most
    probable sense is one that they may have.
    """

    reads = ("scores",)
    factored = frozenset({"scores"})
    likelihood = False

    def __init__(self, *, set: str, of: str, name: str, vectors: nn.Embedding, allowed: Tensor) -> None:
        super().__init__(set=set)
        self.name = name  # of the look-up table
        self.asked = f"positions/{of}"
        self.takes = self.takes | {self.asked}
        self.optional = self.optional | SEQUENCES
        self.at = (self.positions_field,)
        self._tied = (vectors,)  # in a tuple, so that the network's table is not registered twice
        self.register_buffer("allowed", allowed, persistent=False)

    @property
    def weight(self) -> Tensor:
        """The vectors of senses, (S, E)."""
        return self._tied[0].weight

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, S) for the words that are asked for."""
        product: Any = states["scores"]
        if not isinstance(product, Product):
            raise RecipeError("sense_prediction: another objective reads the scores of its head, which it needs as a product.")
        positions = batch[self.asked].long()
        rows = torch.zeros(sequence(batch).shape[:2].numel(), dtype=torch.long, device=positions.device)
        rows = rows.scatter(0, positions, torch.arange(len(positions), device=positions.device))
        return self.of_rows(product.rows.index_select(0, rows[batch[self.positions_field].long()]))

    def of_rows(self, rows: Tensor) -> Tensor:
        """The scores (M, S) of rows (M, E), which a head over the vocabulary would multiply with its table."""
        return F.linear(rows, self.weight.to(rows.dtype))

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in float32."""
        allowed: Tensor = self.allowed[batch[self.targets_field].long()]  # type: ignore[index]
        weights = batch[self.weights_field] if self.weights_field in batch else torch.ones(len(scores), device=scores.device)
        weights = weights * allowed.any(-1)  # padding has no sense
        allowed = allowed | ~allowed.any(-1, keepdim=True)
        right = allowed.gather(1, scores.argmax(-1, keepdim=True)).squeeze(1)
        total = (sense_losses(scores, allowed) * weights).sum() if len(scores) else scores.sum()
        return Loss(total, {"allowed": (right * weights).sum()})

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The vectors of senses, for every word."""
        words = batch[self.positions_field].shape[0]
        counted.add_weight_products(words * self.weight.numel(), trained=self.weight.requires_grad)


@register("objective", "sense_prediction")
def sense_prediction(
    *,
    set: str = "sense",
    of: str = "main",
    senses: str = "senses",
    width: Given[int],
    vocab_size: Given[int],
    vector_tables: Given[Mapping[str, Any] | None] = None,
    tables: Given[Mapping[str, Any] | None] = None,
) -> SensePrediction:
    """SenseBERT's loss of supersenses (Levine et al., 2020, §3.2), at the words that `predict_senses` asks for.

    p(s) is a softmax over all senses. `senses` names the look-up table and the network's vectors, which are the output weights
    as well. `read: token_prediction` names the head over the vocabulary whose transformed states are multiplied with them; `of`
    is the set of that head. There are no parameters of its own.
    """
    vectors = (vector_tables or {}).get(senses)
    if vectors is None:
        table_names = [name for name in vector_tables or {} if name != "tokens"]
        raise RecipeError(
            f"sense_prediction: the network has no vectors of {senses!r}. {propose(senses, table_names)}\n"
            f"  Write `embedding: {{table_with_senses: {{senses: {senses}}}}}` in the network."
        )
    senses_of = (tables or {})[senses].allowed  # None while a recipe is only checked
    allowed = torch.zeros(vocab_size, vectors.num_embeddings, dtype=torch.bool)
    if senses_of is not None:
        allowed[: len(senses_of)] = torch.from_numpy(senses_of)
    return SensePrediction(set=set, of=of, name=senses, vectors=vectors, allowed=allowed)
