"""The contract of objectives: a head, a count that is known before the forward pass, and a loss that is a sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from cloze import fields
from cloze.batch import Batch
from cloze.bounds import Positive
from cloze.networks.cost import Operations, size_of
from cloze.objectives.cross_entropy import are_right
from cloze.objectives.product import Product

#: What a trained head predicts: the token at a position, whether each token belongs where it stands, or the class of a text or
#: a pair of texts. With a kind, `predict` gives logits: commands make probabilities of them by a softmax, or by a sigmoid where
#: there is one output.
Kind = Literal["token_prediction", "token_labelling", "relation_prediction"]


#: The fields that `cloze.batch.sequence` reads the rows and columns of a view from. An objective that calls it puts them in its
#: `optional`; a batch has at least one of them.
SEQUENCES = frozenset(fields.SEQUENCES)


class Loss(NamedTuple):
    """A sum of losses and sums of metrics, all to be divided by the objective's count over everything in the step.

    `counts` are what metrics are divided by instead, by their names: `correct` by the targets where classes have weights.

    The metric `positive`, the number of targets that are 1, gives an objective without a baseline that of a constant prediction,
    and a warning if the loss does not get below it (`training/baselines.py`). It is only for a binary cross-entropy.
    """

    total: Tensor
    metrics: Mapping[str, Tensor]
    counts: Mapping[str, Tensor] = {}


def at_least_float32(x: Tensor) -> Tensor:
    """In float32; float64 stays as it is."""
    return x if x.dtype == torch.float64 else x.float()


class Objective(nn.Module, ABC):
    """A head and a loss: the base class of every objective.

    Without targets the loss is a zero connected to the parameters, so that every rank takes part in the same collectives.

    `kind`, `scope`, `likelihood`, `of_tokens`, `of_records`, `fittable`, `vectors_from`, `width_arguments`, `training_only`,
    `takes_over` and `looks_up` are also read from the class, before anything is built: set them there.

    Attributes:
        takes: The batch fields that it needs.
        optional: The batch fields that it uses if they are present.
        set: The set of targets that it predicts. Its builder calls the argument for it `set`, by which recipes are read.
        reads: The names of the states that it reads.
        at: Fields with the flat positions at which it reads a state. Empty: it may read the state at every position.
        scope: `row` if the loss of a batch is the sum of the losses of its rows. With `batch`, the rows that are compared must
            stay together: those of a `training.group`, or all of the step, which excludes accumulation and several processes.
            With `step`, rows are compared with those of the group or else with all others of the step, however it is divided:
            it is a `StepObjective` (see training/together.py).
        least_rows: With fewer rows in a step there is nothing to compare.
        kind: What commands may use the trained head for; None for anything else: they find it by its name only.
        likelihood: The loss is the negative log-likelihood of the targets, so that a run prints the cross-entropy of frequencies
            as a baseline. Set it to False for any other loss.
        of_tokens: Its targets are tokens of the vocabulary.
        of_texts: Its positions are the ends of two texts.
        independent: Each of its outputs is a yes or no of its own; else they exclude each other.
        of_records: It is about whole records and needs no column of answers.
        over_vocabulary: One table scores every token.
        weighs_classes: Its classes may have weights.
        fittable: `training.new_heads: fitted` can fit `head.output`, and only that, to the states of a frozen network:
            `loss_per_target` is convex in its parameters, and `module` is one of `FITTABLE_HEADS` in `runs/frozen_start.py`.
        vectors_from: What vectors of words are learned from: `windows` of a text, or `cells`, the counts of words that occur
            together; None: it learns none.
        width_arguments: Arguments that may be the name of a reading: it stands for the width of the network whose state the
            reading is bound to.
        by_row: It takes each row of a batch for one text, so rows cannot be packed.
        training_only: No command uses the head; a checkpoint stores it so that training can continue.
        takes_over: Other parts whose heads have the same tensors: it starts from theirs.
        looks_up: Arguments that name look-up tables; a checkpoint with its head holds these tables.
        factored: States that it reads and also takes as a `Product`, if they are another head's scores.
    """

    takes: frozenset[str]
    optional: frozenset[str] = frozenset()
    set: str = "main"
    reads: tuple[str, ...]
    at: tuple[str, ...] = ()
    scope: Literal["row", "batch", "step"] = "row"
    least_rows: int = 1
    kind: Kind | None = None
    likelihood: bool = True
    of_tokens: bool = False
    of_texts: bool = False
    independent: bool = False
    of_records: bool = False
    over_vocabulary: bool = False
    weighs_classes: bool = False
    fittable: bool = False
    vectors_from: Literal["windows", "cells"] | None = None
    width_arguments: tuple[str, ...] = ()
    by_row: bool = False
    training_only: bool = False
    takes_over: frozenset[str] = frozenset()
    factored: frozenset[str] = frozenset()
    looks_up: tuple[str, ...] = ()
    head: nn.Module

    @abstractmethod
    def count(self, batch: Batch) -> Tensor:
        """The sum of the weights of the targets, a float32 number; needs no forward pass."""

    @abstractmethod
    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """What `loss` is computed from: the head's output for every target, or without a head what the states alone give."""

    @abstractmethod
    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The loss and the metrics, summed over the targets. Scores that a later pass reads too are computed once.

        `forward` calls it with `scores`. `Classify.forward` computes the loss over a vocabulary in blocks instead, unless a
        subclass overrides one of the two.
        """

    def loss_per_target(self, scores: Tensor, batch: Batch) -> Loss:
        """The loss that a new head is fitted to, in which each target counts alone; by default that of `loss`."""
        return self.loss(scores, batch)

    def product(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor | Product:
        """The scores for an objective that compares them in blocks; by default they are computed."""
        return self.scores(states, batch)

    def usable_as(self, sees: Sequence[str]) -> Kind | None:
        """What commands may use the trained head for, given what the states that it reads see of a text."""
        return self.kind

    def predict(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """What the trained head says at the positions of its set: its scores."""
        return self.scores(states, batch)

    @property
    def module(self) -> nn.Module | None:
        """The module between states and scores; None for an objective without parameters."""
        return dict(self.named_children()).get("head")

    def head_rows(self, batch: Batch) -> float:
        """How many rows the head reads: by default those at `at`, or all tokens."""
        return next((batch[name].shape[0] for name in self.at if name in batch), size_of(batch).tokens)

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """Count the products of the head; the count begins where the network ends."""
        counted.add(self.head_rows(batch), *self.children())

    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> Loss:
        """The loss and the metrics from the states that are read."""
        return self.loss(self.scores(states, batch), batch)


class StepObjective(Objective):
    """An objective that compares each row with all others of the step (`scope: step`): its loss is `compare` of `kept`.

    `kept` keeps of a micro-batch what the rows of the others need. If a step is divided, `loss_by` replaces `compare`.
    """

    scope: Literal["row", "batch", "step"] = "step"
    _of_step: Callable[[Mapping[str, Tensor]], Loss] | None = None

    @abstractmethod
    def kept(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The tensors of this micro-batch that the loss of the whole step compares."""

    @abstractmethod
    def compare(self, rows: Mapping[str, Tensor]) -> Loss:
        """The loss of the rows that `kept` was called for."""

    @contextmanager
    def loss_by(self, of_step: Callable[[Mapping[str, Tensor]], Loss]) -> Iterator[None]:
        """A context in which `of_step` computes the loss of what is kept, in place of `compare`."""
        before, self._of_step = self._of_step, of_step
        try:
            yield
        finally:
            self._of_step = before

    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> Loss:
        """The loss over all rows of the step."""
        tensors = self.kept(states, batch)
        return self.compare(tensors) if self._of_step is None else self._of_step(tensors)


#: Weights of classes: `balanced`, n / (C · n_c) from the labels of the training text, or one number for each class.
ClassWeights = Literal["balanced"] | list[Positive] | None


def balanced(counts: Sequence[int]) -> list[float]:
    """The weight of each class, n / (C · n_c): all classes then weigh the same together, and all targets weigh 1 on average."""
    return [sum(counts) / (len(counts) * max(count, 1)) for count in counts]


def weights_of(weights: ClassWeights, classes: int) -> Tensor | None:
    """The weights of classes (C,). None: all weigh the same, or the labels of the training text are not known yet."""
    if weights is None or weights == "balanced" or len(weights) != classes:
        return None
    return torch.tensor(weights, dtype=torch.float32)


def weights_of_targets(class_weights: Tensor, targets: Tensor) -> Tensor:
    """The weights of the classes of targets (M,)."""
    return class_weights.to(targets.device)[targets.long()]


class TargetsAtPositions(Objective):
    """An objective with `targets/<set>` at `positions/<set>`; each target weighs 1 unless `weights/<set>` says otherwise.

    `class_weights` (C,): where classes have weights, a target weighs that of its class times its own.
    """

    class_weights: Tensor | None

    def __init__(self, *, set: str) -> None:
        super().__init__()
        self.register_buffer("class_weights", None, persistent=False)
        self.set = set
        self.targets_field, self.positions_field, self.weights_field = f"targets/{set}", f"positions/{set}", f"weights/{set}"
        self.takes = frozenset({self.targets_field, self.positions_field})
        self.optional = frozenset({self.weights_field})

    def count(self, batch: Batch) -> Tensor:
        """The sum of weights; without weights, the number of targets."""
        weights = self.target_weights(batch)
        if weights is not None:
            return weights.sum(dtype=torch.float32)
        return torch.tensor(float(batch[self.positions_field].shape[0]))

    def target_weights(self, batch: Batch) -> Tensor | None:
        """The weight of every target (M,); None: each weighs 1."""
        weights = batch.get(self.weights_field)
        if self.class_weights is None:
            return weights
        of_class = weights_of_targets(self.class_weights, batch[self.targets_field])
        return of_class if weights is None else weights * of_class

    def with_accuracy(self, total: Tensor, correct: Tensor, scores: Tensor, batch: Batch) -> Loss:
        """The loss of scores (M, C), or (M,) of two classes, with the metric `correct`: the sum of weights where they are right.

        Where classes have weights, `correct` is computed again without them: accuracy counts targets, not weights.
        """
        if self.class_weights is None:
            return Loss(total, {"correct": correct})
        right = are_right(scores.detach(), batch[self.targets_field].long())
        weights = batch.get(self.weights_field)
        weights = torch.ones_like(right) if weights is None else weights.to(right.dtype)
        return Loss(total, {"correct": (right * weights).sum()}, counts={"correct": weights.sum()})
