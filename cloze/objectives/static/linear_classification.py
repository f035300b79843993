"""The classes of a text by one map without a bias: the losses of fastText's classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.objectives.objective import ClassWeights, Kind, Loss, Objective, at_least_float32, weights_of, weights_of_targets
from cloze.objectives.static.huffman import Codes, huffman
from cloze.registry import Given, register

LinearLoss = Literal["softmax", "one_versus_all", "hierarchical"]


@register("objective", "linear_classification")
class LinearClassification(Objective):
    """The class of a text, or with `several` its classes, by a linear map of `summary` (Joulin et al., 2017, §2).

    loss: `softmax`; `one_versus_all`, a binary decision for each class (fastText's `ova`); `hierarchical`, decisions along the
      class's path in a Huffman tree (§2.1), which costs log C instead of C (`hs`). The probability of bit 1 is σ(w · x), as in
      `loss.cc`; word2vec's code has the opposite sign.
    several: a text has any number of classes. `softmax` and `hierarchical` then learn each of them with the same weight; the
      compiled engine draws one of them for each step, as `fasttext.cc` does.

    class_weights: as in `relation_prediction`; they multiply the steps of a text of that class. Losses are divided by the number
      of texts.

    The output is zero at first. Metrics: `correct`, texts whose most probable class is theirs, or one of theirs.

    Parameters: `head.weight` (C, D), or with `hierarchical` (C - 1, D), one row per inner node.
    """

    kind: Kind | None = "relation_prediction"
    class_weights: Tensor | None

    def __init__(
        self, *,
        set: str = "label",
        classes: Count = 2,
        loss: LinearLoss = "softmax",
        several: bool = False,
        label_counts: list[int] | None = None,
        class_weights: ClassWeights = None,
        width: Given[int],
    ) -> None:
        super().__init__()
        if loss == "hierarchical" and label_counts is not None and len(label_counts) != classes:
            raise RecipeError(f"linear_classification: {len(label_counts)} label_counts for {classes} classes.")
        if several and class_weights is not None:
            raise RecipeError("linear_classification: class_weights are for texts of one class each. Leave it or `several` out.")
        self.register_buffer("class_weights", weights_of(class_weights, classes), persistent=False)
        self.weighs_classes = not several
        self.set, self.classes, self.formula, self.several = set, classes, loss, several
        self.targets_field, self.values_field = f"targets/{set}", f"values/{set}"
        self.positions_field, self.weights = f"positions/{set}", f"weights/{set}"
        self.optional = frozenset({self.weights})  # zeros at targets that only fill a batch up
        self.takes = frozenset({self.values_field if several else self.targets_field, self.positions_field})
        self.reads, self.at = ("summary",), (self.positions_field,)
        counts = np.maximum(np.array(label_counts or [1] * classes, np.int64), 1)
        self.codes: Codes | None = huffman(counts) if loss == "hierarchical" else None
        self.head = nn.Linear(width, max(classes - 1, 1) if loss == "hierarchical" else classes, bias=False)
        nn.init.zeros_(self.head.weight)

    def count(self, batch: Batch) -> Tensor:
        """The number of texts."""
        if self.weights in batch:
            return batch[self.weights].sum(dtype=torch.float32)
        return torch.tensor(float(batch[self.positions_field].shape[0]))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C): log-probabilities up to a constant, or with `one_versus_all` the log-odds of each class."""
        rows = states["summary"].index_select(0, batch[self.positions_field].long())
        logits: Tensor = self.head(rows)
        return logits if self.codes is None else _leaves(at_least_float32(logits), self.codes)

    def predict(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """What `softmax` over the classes, or with `several` the sigmoid of each, turns into the probabilities of the loss."""
        logits = at_least_float32(self.scores(states, batch))
        if self.formula == "one_versus_all":
            return logits if self.several else F.logsigmoid(logits)
        return torch.logit(logits.softmax(-1).clamp(1e-7, 1 - 1e-7)) if self.several else logits

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; no texts give a zero connected to the parameters."""
        logits = at_least_float32(scores)
        if self.several:
            labels = batch[self.values_field][: len(logits)].to(logits.dtype)
        else:
            labels = F.one_hot(batch[self.targets_field].long(), self.classes).to(logits.dtype)
        if self.formula == "one_versus_all":
            losses = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").sum(-1)
        else:
            losses = -(logits.log_softmax(-1) * labels / labels.sum(-1, keepdim=True).clamp(min=1)).sum(-1)
        if self.class_weights is not None:
            losses = losses * weights_of_targets(self.class_weights, batch[self.targets_field])
        correct = labels.gather(1, logits.detach().argmax(-1, keepdim=True)).squeeze(1)
        if self.weights in batch:
            losses, correct = losses * batch[self.weights], correct * batch[self.weights]
        return Loss(losses.sum(), {"correct": correct.sum()})


def _leaves(nodes: Tensor, codes: Codes) -> Tensor:
    """The log-probability of every class (M, C) from the log-odds of bit 1 at every inner node (M, C - 1)."""
    points = torch.from_numpy(np.maximum(codes.points, 0).astype(np.int64)).to(nodes.device)
    bits = torch.from_numpy(codes.bits).to(nodes)
    if not points.shape[1]:
        return nodes.new_zeros(len(nodes), len(points))
    along = nodes[:, points]
    steps = F.logsigmoid(torch.where(bits > 0, along, -along))
    return steps.masked_fill(bits < 0, 0.0).sum(-1)
