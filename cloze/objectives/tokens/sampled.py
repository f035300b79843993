"""Predict tokens of a large vocabulary: a softmax over a sample of ids, or over the most frequent ids only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze import rng
from cloze.batch import Batch
from cloze.bounds import Count, Positive
from cloze.errors import RecipeError
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations
from cloze.networks.spelling import unknown_id
from cloze.objectives.cross_entropy import cross_entropy_sum, vocabulary_loss
from cloze.objectives.heads import VocabularyHead
from cloze.objectives.objective import Loss
from cloze.objectives.tokens.token_prediction import TokenPrediction
from cloze.registry import Given, register


def log_uniform(ids: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """The probability of ids under the log-uniform distribution P(k) = log((k + 2) / (k + 1)) / log(size + 1), which is
    Zipf's law if ids are sorted by frequency."""
    probabilities: NDArray[np.float64] = np.log1p(1.0 / (ids + 1.0)) / math.log(size + 1)
    return probabilities


def draw_log_uniform(number: int, size: int, key: int) -> tuple[NDArray[np.int64], int]:
    """`number` different ids below `size`, drawn log-uniformly until there are enough, and how many draws it took."""
    generator = np.random.Generator(np.random.Philox(key=key))
    drawn = np.zeros(0, np.int64)
    while True:
        uniform = generator.random(max(2 * number, 64))
        more = np.minimum(np.exp(uniform * math.log(size + 1)).astype(np.int64) - 1, size - 1)
        drawn = np.concatenate([drawn, more])
        ids, first = np.unique(drawn, return_index=True)  # by id; `first` is the draw that each came with
        if len(ids) >= number:
            order = np.argsort(first)[:number]  # the ids in the order in which they were drawn
            return ids[order], int(first[order[-1]]) + 1


def log_expected(ids: NDArray[np.int64], size: int, draws: int) -> NDArray[np.float64]:
    """The logarithm of the expected count of ids in a sample without repetition that took `draws` draws."""
    expected: NDArray[np.float64] = -np.expm1(draws * np.log1p(-log_uniform(ids, size)))
    return np.log(expected)


class SampledPrediction(TokenPrediction):
    """Token prediction over the first `rows` ids of the head; rarer ones become `unknown`.

    Each step draws `samples` ids log-uniformly, the same for all of its targets (Jean et al., 2015; TensorFlow's
    `sampled_softmax_loss`). The loss is the cross-entropy of the target among them, after subtracting from every score the
    logarithm of the expected count of its id in a sample. A drawn id that equals the target is masked. Held-out losses use the
    whole softmax. Metric `correct`: targets with the highest score among the ids compared.
    """

    head: VocabularyHead

    def __init__(
        self, head: VocabularyHead, *, set: str, samples: int | None, rows: int, vocab_size: int, unknown: int, clock: Clock
    ) -> None:
        super().__init__(head, set=set)
        self.samples = samples if samples is not None and samples < rows else None
        self.size, self.vocab_size, self.unknown, self.clock = rows, vocab_size, unknown, clock

    def target_ids(self, batch: Batch) -> Tensor:
        """The ids to predict, (M,): those beyond the head's are [UNK]."""
        targets = batch[self.targets_field].long()
        return targets if self.size >= self.vocab_size else torch.where(targets < self.size, targets, self.unknown)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """The sample in training, otherwise the whole softmax."""
        weight = self.head.weight
        seen = len(weight) if self.samples is None or not self.training else self.samples
        rows = batch[self.positions_field].shape[0]
        counted.add(rows, self.head.dense)
        counted.add_weight_products(rows * seen * weight.shape[1], trained=weight.requires_grad)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, V); ids that are never a target score -inf."""
        logits = super().scores(states, batch)
        missing = self.vocab_size - logits.shape[1]
        return torch.cat([logits, logits.new_full((len(logits), missing), -torch.inf)], dim=1) if missing > 0 else logits

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss from all scores."""
        total, correct = cross_entropy_sum(scores[:, : self.size], self.target_ids(batch), self.loss_weights(batch))
        return Loss(total, {"correct": correct})

    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> Loss:
        """The summed loss: over a sample in training, otherwise over the whole softmax."""
        rows = self.head.transform_rows(self.rows(states, batch))
        targets, weights = self.target_ids(batch), self.loss_weights(batch)
        if self.samples is None or not self.training:
            total, correct = vocabulary_loss(rows, self.head.weight, self.head.bias, targets, weights)
        else:
            total, correct = self._sampled_loss(rows, targets, weights, self.samples)
        return Loss(total, {"correct": correct})

    def _sampled_loss(self, rows: Tensor, targets: Tensor, weights: Tensor | None, number: int) -> tuple[Tensor, Tensor]:
        # Shapes: M targets, S samples, `rows` (M, D); `drawn` and `sample` (S,) ids, `every` (ids,).
        seed, step, _ = self.clock.numbers
        drawn, draws = draw_log_uniform(number, self.size, rng.fold(seed, step, "sampled", self.set))
        every = torch.from_numpy(log_expected(np.arange(self.size), self.size, draws)).float().to(rows.device)
        sample = torch.from_numpy(drawn).to(rows.device)
        table, bias = self.head.weight, self.head.bias
        chosen = table.index_select(0, torch.cat([targets, sample])).to(rows.dtype)
        true, false = chosen[: len(targets)], chosen[len(targets) :]  # (M, D) and (S, D)
        # `right` (M, 1), each row with its own vector; `wrong` (M, S), each row with all samples.
        right = (rows * true).sum(1, keepdim=True).float() - every[targets][:, None]
        wrong = (rows @ false.t()).float() - every[sample]
        if bias is not None:
            right, wrong = right + bias[targets][:, None], wrong + bias[sample]
        wrong = wrong.masked_fill(sample == targets[:, None], torch.finfo(wrong.dtype).min)
        # Among (M, 1 + S) the target is column 0.
        return cross_entropy_sum(torch.cat([right, wrong], dim=1), torch.zeros_like(targets), weights)


@register("objective", "sampled_prediction")
def sampled_prediction(
    *,
    samples: Count | None = None,
    frequent: Count | None = None,
    transform: Literal["gelu", "gelu_tanh", "relu"] | None = None,
    norm_epsilon: Positive = 1e-12,
    tie: bool = False,
    bias: bool = True,
    initial: Law = "truncated",
    set: str = "main",
    width: Given[int],
    vocab_size: Given[int],
    table: Given[nn.Embedding | None] = None,
    clock: Given[Clock],
    spellings: Given[Sequence[str] | None] = None,
) -> SampledPrediction:
    """Token prediction over a large vocabulary, as in ELMo (see `SampledPrediction`).

    `samples`: train with a softmax over this many random ids instead of all. `frequent`: predict only this many most frequent
    ids; the others become [UNK]. Ids must be sorted by frequency, as the tokenizer `words` sorts them. `transform`,
    `norm_epsilon`, `tie`, `bias` and `initial` are those of `token_prediction`.

    Parameters: `head.dense.*`, `head.norm.*`, `head.bias`, `head.output.weight` if not tied.
    """
    if samples is None and frequent is None:
        raise RecipeError("sampled_prediction: give samples or frequent; for a softmax over all ids write token_prediction.")
    if tie and table is None:
        raise RecipeError("sampled_prediction: tie is true, but the network it reads has no token table.")
    if frequent is not None and (frequent < 2 or tie):
        raise RecipeError(
            f"sampled_prediction.frequent: {frequent} with tie: {str(tie).lower()}; expected at least 2 ids, and tie: false."
        )
    rows = vocab_size if frequent is None else min(frequent, vocab_size)
    head = VocabularyHead(
        width=width, vocab_size=rows, transform=transform, table=table if tie else None, bias=bias, norm_epsilon=norm_epsilon,
        initial=initial,
    )
    return SampledPrediction(
        head, set=set, samples=samples, rows=rows, vocab_size=vocab_size, unknown=unknown_id(spellings), clock=clock
    )
