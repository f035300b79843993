"""What objectives that predict numbers of a whole text share: the head, and where the targets are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
from cloze.objectives.classify import means
from cloze.objectives.heads import ClassHead
from cloze.objectives.objective import Objective
from cloze.objectives.pooled import pooled
from cloze.objectives.transforms import Tanh, Transform

#: What is read of a text, or, with `hidden`, the states at positions.
Read = Literal["summary", "mean", "concat", "hidden"]


def reading_of(read: Read) -> str:
    """The state that one vector of each text is read from."""
    return "summary" if read == "summary" else "hidden"


def read_texts(states: Mapping[str, Tensor], batch: Batch, read: Read) -> Tensor:
    """One vector of each text: `summary` (E, D), or of the tokens in `hidden` (B, L, D) the `mean` (B, D), or with `concat` the
    last, the maximum and the mean (B, 3 D). Padding is excluded. With `hidden`, all states (B·L, D)."""
    if read == "summary":
        return states["summary"]
    state = states["hidden"]
    if read == "hidden":
        return state.flatten(0, -2)
    if read == "mean":
        return means(state, batch)
    everywhere = torch.ones(state.shape[:2], dtype=torch.bool, device=state.device)
    return pooled(state, batch["block"] > 0 if "block" in batch else everywhere, "concat")


def summary_head(
    *, classes: int, width: int, clock: Clock, dropout: float, pool: bool, transform: Transform,
    output_bias: bool, reading: Read, initial: Law = "truncated",
) -> ClassHead:
    """The head of `relation_prediction` (`pool`) or of `classify`, or the pooler of the one before the other, with an output for
    each of `classes`."""
    both = pool and transform is not None
    head = ClassHead(
        width=3 * width if reading == "concat" else width, classes=classes, transform=Tanh() if pool and not both else transform,
        dropout=Dropout(dropout, clock), pool=pool and not both, pooled=both, initial=initial,
    )
    if not output_bias:  # it stays zero
        head.output.bias.requires_grad_(False)
    return head


class SummaryValues(Objective):
    """An objective that predicts `values/<set>` (M, C) of the texts `positions/<set>`.

    `reading` is the state that is read of a text, see `read_texts`. Rows of one `owner` have one target, and their scores are
    averaged. Each target weighs 1 unless `weights/<set>` says otherwise. The loss is not a likelihood.
    """

    likelihood = False
    fittable = True

    def __init__(self, head: nn.Module, *, set: str, reading: Read = "summary") -> None:
        super().__init__()
        self.head, self.set, self.reading = head, set, reading
        self.values_field, self.positions_field, self.weights_field = f"values/{set}", f"positions/{set}", f"weights/{set}"
        self.takes = frozenset({self.values_field, self.positions_field})
        self.optional = frozenset({self.weights_field, "block", "owner"})
        self.reads: tuple[str, ...] = (reading_of(reading),)
        self.by_row = reading in ("mean", "concat")
        self.at: tuple[str, ...] = (self.positions_field,) if reading in ("summary", "hidden") else ()

    def count(self, batch: Batch) -> Tensor:
        """The sum of weights; without weights, the number of targets."""
        if "owner" in batch:
            return torch.tensor(float(records_of(batch["owner"])))
        if self.weights_field in batch:
            return batch[self.weights_field].sum(dtype=torch.float32)
        return torch.tensor(float(batch[self.positions_field].shape[0]))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, C), or of rows with an owner (records, C)."""
        texts = read_texts(states, batch, self.reading)
        if "owner" not in batch:
            logits: Tensor = self.head(texts.index_select(0, batch[self.positions_field].long()))
            return logits
        owner, row_logits = batch["owner"].long(), self.head(texts)
        sums = row_logits.new_zeros(records_of(owner), row_logits.shape[1]).index_add(0, owner, row_logits)
        return sums / torch.bincount(owner, minlength=len(sums))[:, None]

    def target_values(self, batch: Batch) -> Tensor:
        """The targets of the scores, (M, C) or (records, C)."""
        values = batch[self.values_field]
        if "owner" not in batch:
            return values
        owner = batch["owner"]
        first = torch.ones_like(owner, dtype=torch.bool)
        first[1:] = owner[1:] != owner[:-1]
        return values[: len(owner)][first]  # padding follows the targets

    def head_rows(self, batch: Batch) -> float:
        """One for every target."""
        return batch[self.positions_field].shape[0]

    def weighed(self, losses: Tensor, batch: Batch) -> Tensor:
        """The weighted sum of one number for each target (M,)."""
        weights = None if "owner" in batch else batch.get(self.weights_field)
        return losses.sum() if weights is None else (losses * weights).sum()


def records_of(owner: Tensor) -> int:
    """The number of records that the rows were made from, by their `owner` (R,)."""
    return int(owner.max()) + 1 if len(owner) else 0
