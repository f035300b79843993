"""What every objective promises: a head, a count known before the forward pass, and a loss that is a sum."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.networks.cost import TRAINED, shown
from cloze.objectives.heads import products

#: What a trained head can be used for: to say which token stands at a place, whether each token belongs there, or what class a
#: text or a pair has.
Kind = Literal["token_prediction", "token_labelling", "relation_prediction"]


class Loss(NamedTuple):
    """A sum of losses and sums of metrics, all to be divided by the objective's count over everything in the step."""

    total: Tensor
    metrics: Mapping[str, Tensor]


def wide(x: Tensor) -> Tensor:
    """In float32, or in float64 if it is."""
    return x if x.dtype == torch.float64 else x.float()


class Objective(nn.Module):
    """A head and a loss.

    `takes` are batch fields it needs, `optional` the ones it uses if they are there, `reads` the names of its readings.
    `at` are the fields with the flat positions of the state that it reads; none: it may read all of it.
    `scope` is `row` when the loss of a batch is the sum of the losses of its rows; with `batch` the rows of a step must stay
    together: neither accumulation nor several processes are possible; with `step` rows are compared with all others of the step,
    and the objective says by `kept` and `compare` how (see training/together.py). `kind` is what the verbs may use the trained
    head for; None: for nothing, it is known by its name. `likelihood`: the loss is the targets' negative log-likelihood.
    `of_texts`: its positions are the ends of two texts; `of_records`: it is about whole records and needs no column of theirs.
    Zero targets give a zero that is connected to the parameters, so that every rank takes part in the same collectives.
    """

    takes: frozenset[str]
    optional: frozenset[str] = frozenset()
    reads: tuple[str, ...]
    at: tuple[str, ...] = ()
    scope: Literal["row", "batch", "step"] = "row"
    kind: Kind | None = None
    likelihood: bool = True
    of_texts: bool = False
    of_records: bool = False
    head: nn.Module

    @abstractmethod
    def count(self, batch: Batch) -> Tensor:
        """The sum of the weights of the targets, a float32 number; needs no forward pass."""

    @abstractmethod
    def scores(self, readings: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The head's output for every target."""

    @abstractmethod
    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The loss and the metrics, summed over the targets; scores that a later pass also reads are made only once."""

    def flops(self, batch: Batch) -> float:
        """Floating-point operations of forward and backward for a batch's targets: those of the head, for every row it reads."""
        rows = next((batch[name].shape[0] for name in self.at if name in batch), None)
        return TRAINED * products(self) * (shown(batch).tokens if rows is None else rows)

    def forward(self, readings: Mapping[str, Tensor], batch: Batch) -> Loss:
        """The loss and the metrics from the readings."""
        return self.loss(self.scores(readings, batch), batch)


class TargetsAtPositions(Objective):
    """An objective with `targets/<set>` at `positions/<set>`; each target weighs 1 unless `weights/<set>` says otherwise."""

    def __init__(self, *, set: str) -> None:
        super().__init__()
        self.set = set
        self.targets, self.target_positions, self.weights = (f"{field}/{set}" for field in ("targets", "positions", "weights"))
        self.takes = frozenset({self.targets, self.target_positions})
        self.optional = frozenset({self.weights})

    def count(self, batch: Batch) -> Tensor:
        """The sum of weights; without weights, the number of targets."""
        if self.weights in batch:
            return batch[self.weights].sum(dtype=torch.float32)
        return torch.tensor(float(batch[self.target_positions].shape[0]))
