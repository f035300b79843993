"""Choose one of the rows made from a record: a softmax over the texts that it offers, or a yes or no for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne
from cloze.networks.clock import Clock
from cloze.objectives.objective import Loss, Objective, at_least_float32
from cloze.objectives.summary import Read, read_texts, reading_of, records_of, summary_head
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register


class Choose(Objective):
    """Sum over the records of -log softmax of the right row's score among the rows of its `owner`.

    `targets/<set>` (R,) is 1 in the right row of each record and 0 in the others. Each record counts 1. The loss of a record that
    offers one text is 0, and that of K equal scores is ln K. Metric `correct`: the records whose first highest score is right.
    """

    likelihood = False  # a record has one right row: how often rows are right is no baseline
    fittable = True

    def __init__(self, head: nn.Module, *, set: str, reading: Read = "summary") -> None:
        super().__init__()
        self.head, self.set, self.reading = head, set, reading
        self.targets_field = f"targets/{set}"
        self.takes = frozenset({self.targets_field, "owner"})
        self.optional = frozenset({"block"})
        self.reads: tuple[str, ...] = (reading_of(reading),)

    def count(self, batch: Batch) -> Tensor:
        """The records."""
        return torch.tensor(float(records_of(batch["owner"])))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """A score for every row, (R,)."""
        logits: Tensor = self.head(read_texts(states, batch, self.reading))
        return logits.squeeze(-1)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; no rows give a zero connected to the parameters."""
        logits, owner = at_least_float32(scores), batch["owner"].long()
        right = batch[self.targets_field][: len(owner)] > 0  # padding follows the targets
        log_probabilities = log_softmax_within(logits, owner)
        total = -torch.where(right, log_probabilities, 0.0).sum()
        best = first_best(logits.detach(), owner)
        correct = right[best].to(logits.dtype).sum() if len(best) else logits.detach().sum() * 0
        return Loss(total, {"correct": correct})

    def head_rows(self, batch: Batch) -> float:
        """One for every choice."""
        return batch["owner"].shape[0]


class JudgedRows(Choose):
    """Sum over the rows of the cross-entropy of right and wrong, each row by itself; the row of a record with the highest score
    of "right" is chosen.

    With one output that score is its log-odds, with two it is the second one. Each row counts 1. Metric `correct`: the rows that
    are judged correctly.
    """

    def count(self, batch: Batch) -> Tensor:
        """The rows."""
        return torch.tensor(float(batch["owner"].shape[0]))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The outputs for every row, (R, 1) or (R, 2)."""
        logits: Tensor = self.head(read_texts(states, batch, self.reading))
        return logits

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; no rows give a zero connected to the parameters."""
        logits = at_least_float32(scores)
        right = batch[self.targets_field][: len(logits)] > 0  # padding follows the targets
        both = torch.cat([torch.zeros_like(logits), logits], -1) if logits.shape[-1] == 1 else logits  # wrong and right
        total = F.cross_entropy(both, right.long(), reduction="sum")
        return Loss(total, {"correct": (both.detach().argmax(-1) == right).to(logits.dtype).sum()})


def log_softmax_within(scores: Tensor, owner: Tensor) -> Tensor:
    """The logarithm of the softmax of scores (R,) over the rows of the same owner."""
    records = records_of(owner)
    highest = scores.detach().new_full((records,), -torch.inf).scatter_reduce(0, owner, scores.detach(), "amax")
    shifted = scores - highest[owner]
    sums = shifted.new_zeros(records).index_add(0, owner, shifted.exp())
    return shifted - sums.log()[owner]


def first_best(scores: Tensor, owner: Tensor) -> Tensor:
    """The first row with the highest score of each owner, (records,)."""
    records = records_of(owner)
    highest = scores.new_full((records,), -torch.inf).scatter_reduce(0, owner, scores, "amax")
    rows = torch.arange(len(scores), device=scores.device)
    candidates = torch.where(scores == highest[owner], rows, len(scores))
    return rows.new_full((records,), len(scores)).scatter_reduce(0, owner, candidates, "amin")


@register("objective", "choose")
def choose(
    *,
    set: str = "label",
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> Choose:
    """Choose the right row of a record: a score for each row from its summary, and a softmax over the record's rows.

    The head and its parameters are those of `regress` with one output.
    """
    head = summary_head(
        classes=1, width=width, clock=clock, dropout=dropout, pool=pool, transform=transform,
        output_bias=output_bias, reading=reading,
    )
    return Choose(head, set=set, reading=reading)


@register("objective", "judge")
def judge(
    *,
    set: str = "label",
    outputs: Literal[1, 2] = 1,
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> JudgedRows:
    """Choose the right row of a record by a yes or no for each row: one output with binary cross-entropy (jackroos/VL-BERT,
    `CLASSIFIER_SIGMOID`), or two with a softmax (ChenRocks/UNITER, `model/vcr.py`).

    The head and its parameters are those of `regress` with so many outputs.
    """
    head = summary_head(
        classes=outputs, width=width, clock=clock, dropout=dropout, pool=pool, transform=transform,
        output_bias=output_bias, reading=reading,
    )
    return JudgedRows(head, set=set, reading=reading)
