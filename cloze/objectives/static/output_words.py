"""What objectives with a table of output words share: targets at positions of a state, and counts that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.hashed import count_roles
from cloze.objectives.objective import Loss, TargetsAtPositions


class OutputWords(TargetsAtPositions):
    """Scores `targets/<set>` at `positions/<set>` of one state (B, L, D) by rows of `head.weight`, which begin at zero.

    `counts` (V,) is how often each id occurs, 0 for roles and at least 1 for words; a checkpoint keeps it.
    """

    of_tokens = True
    head: nn.Embedding

    def __init__(
        self, *, set: str, rows: int, width: int, vocab_size: int, counts: NDArray[np.int64] | None,
        spellings: Sequence[str] | None,
    ) -> None:
        super().__init__(set=set)
        self.reads = ("hidden",)
        self.at: tuple[str, ...] = (self.positions_field,)
        self.head = nn.Embedding(rows, width)
        nn.init.zeros_(self.head.weight)
        self.counts: Tensor
        self.register_buffer("counts", torch.as_tensor(word_counts(vocab_size, counts, spellings), device="cpu"))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.counts_changed()

    def counts_changed(self) -> None:
        """Discard what was derived from the counts: they have changed."""

    def rows(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The states at the positions of the targets, (M, D)."""
        return states[self.reads[0]].flatten(0, -2).index_select(0, batch[self.positions_field].long())

    def summed(self, losses: Tensor, right: Tensor, batch: Batch) -> Loss:
        """The weighted sums of the losses (M,) and of the metric `correct`."""
        correct = right.float()
        if self.weights_field in batch:
            losses, correct = losses * batch[self.weights_field], correct * batch[self.weights_field]
        return Loss(losses.sum(), {"correct": correct.sum()})


def word_counts(
    vocab_size: int, counts: NDArray[np.int64] | None, spellings: Sequence[str] | None
) -> NDArray[np.int64]:
    """How often each word occurs (V,): 0 for roles, at least 1 for words; 1 for every word if there are no counts."""
    occurrences = np.ones(vocab_size, np.int64) if counts is None else np.maximum(np.asarray(counts, np.int64), 1)
    roles = 0 if spellings is None else count_roles(spellings)
    occurrences[: roles if roles < vocab_size else 0] = 0
    return occurrences
