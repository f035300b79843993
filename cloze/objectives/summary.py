"""What objectives share that ask for numbers of a whole text: the head, and where the answers are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.clock import Clock
from cloze.networks.cost import TRAINED
from cloze.objectives.classify import means
from cloze.objectives.heads import ClassHead, Transform, products
from cloze.objectives.objective import Objective

Read = Literal["summary", "mean"]


def summary_head(
    *, classes: int, width: int, clock: Clock, dropout: float, pool: bool, transform: Transform | None,
    norm_epsilon: float | None, biases: bool, output_bias: bool,
) -> ClassHead:
    """The head of `relation_prediction` (`pool`) or of `classify`, with an output for each of `classes`."""
    if pool and (transform is not None or norm_epsilon is not None or not biases):
        raise RecipeError("pool is dense and tanh; leave out transform, norm_epsilon and biases, or write pool: false.")
    if not pool and transform is None and (norm_epsilon is not None or not biases):
        raise RecipeError("norm_epsilon and biases belong to the dense map of a `transform`; choose one, such as gelu.")
    head = ClassHead(
        width=width, classes=classes, transform="tanh" if pool else transform, dropout=Dropout(dropout, clock), pool=pool,
        norm_epsilon=norm_epsilon, biases=biases,
    )
    if not output_bias:  # it stays zero
        head.output.bias.requires_grad_(False)
    return head


class SummaryValues(Objective):
    """An objective that asks for `values/<set>` (M, C) of the texts `places/<set>`.

    `reading` is `summary` (E, D), or the `mean` of the tokens of `hidden` (B, L, D), where padding has no part in it.
    Each answer weighs 1 unless `weights/<set>` says otherwise. The loss is no likelihood of the answers.
    """

    likelihood = False

    def __init__(self, head: nn.Module, *, set: str, reading: Read = "summary") -> None:
        super().__init__()
        self.head, self.set = head, set
        self.values, self.places, self.weights = (f"{field}/{set}" for field in ("values", "places", "weights"))
        self.takes = frozenset({self.values, self.places})
        self.optional = frozenset({self.weights, "block"})
        self.mean = reading == "mean"
        self.reads: tuple[str, ...] = ("hidden",) if self.mean else ("summary",)
        self.at: tuple[str, ...] = () if self.mean else (self.places,)

    def count(self, batch: Batch) -> Tensor:
        """The sum of weights; without weights, the number of answers."""
        if self.weights in batch:
            return batch[self.weights].sum(dtype=torch.float32)
        return torch.tensor(float(batch[self.places].shape[0]))

    def scores(self, readings: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C)."""
        texts = means(readings["hidden"], batch) if self.mean else readings["summary"]
        found: Tensor = self.head(texts.index_select(0, batch[self.places].long()))
        return found

    def flops(self, batch: Batch) -> float:
        """Those of the head for every answer."""
        return TRAINED * products(self) * batch[self.places].shape[0]

    def weighed(self, losses: Tensor, batch: Batch) -> Tensor:
        """The sum of one number for each answer (M,), weighed."""
        weights = batch.get(self.weights)
        return losses.sum() if weights is None else (losses * weights).sum()


def wide(x: Tensor) -> Tensor:
    """At least in fp32."""
    return x if x.dtype == torch.float64 else x.float()
