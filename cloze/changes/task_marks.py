"""`change: [marks]`: the tokenizer gets special tokens for a task, such as GPT's start, delimiter and extract tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cloze.bounds import NonNegative
from cloze.changes.change import Transition
from cloze.changes.vocabulary import OtherIds
from cloze.registry import register
from cloze.text.roles import check_marks


@register("change", "marks")
@dataclass(frozen=True)
class TaskMarks(OtherIds):
    """Add special tokens for a task to the checkpoint's tokenizer, and a row for each to its tables.

    `tokens` maps roles to the spelling of their new tokens; the recipe's `reading` and templates write the roles. Their ids
    follow the others, and their rows are drawn from N(0, `std`²) (Radford et al., 2018, §3.3; openai/finetune-transformer-lm,
    `train.py`). A token that the vocabulary has already keeps its row, so a tuned checkpoint can be tuned again.
    """

    tokens: dict[str, str]
    std: NonNegative = 0.02

    def __post_init__(self) -> None:
        check_marks(self.tokens)

    @property
    def marks(self) -> Mapping[str, str]:
        """The new tokens."""
        return self.tokens

    @property
    def start(self) -> str:
        """Where the rows of new tokens start."""
        return f"at random with a standard deviation of {self.std:g}"

    def ids(self, transition: Transition) -> int:
        """Those of the tokenizer with the new tokens."""
        return transition.new_tokenizer.size

    def rows(self, table: Tensor, transition: Transition) -> Tensor:
        """The table's own rows, then those of the new tokens."""
        shape = (transition.new_tokenizer.size - transition.old_tokenizer.size, *table.shape[1:])
        drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * self.std
        return torch.cat([table, torch.from_numpy(drawn).to(table)])
