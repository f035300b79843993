"""Append an end token to a companion, as one of its own tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from cloze.bounds import Count
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "close")
@dataclass(frozen=True)
class Close(Edit):
    """Cut a companion to `max_length` tokens, of which the last one is the role `end`.

    The row's own text and the companion share the row: the text gets the rest of the row, at least half of it.
    """

    described: ClassVar[Mapping[str, str]] = MappingProxyType({"max_length": "target_length"})

    of: str = "target"
    max_length: Count = 64
    end: str = "[SEP]"
    tokenizer: Given[TokenFacts | None] = field(default=None, repr=False, compare=False)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"{self.of}.tokens", f"{self.of}.length"})

    @property
    def gives(self) -> frozenset[str]:
        return self.takes

    def for_length(self, length: int) -> Close:
        """The same edit for rows whose texts have at most `length` tokens together."""
        return replace(self, max_length=self._most(length))

    def max_input(self, length: int) -> int:
        """The tokens left for the row's own text."""
        return length - self._most(length)

    def _most(self, length: int) -> int:
        return max(1, min(self.max_length, length // 2))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        end = needed(self.tokenizer, "close").role(self.end)
        tokens = rows[f"{self.of}.tokens"]
        length = np.minimum(rows[f"{self.of}.length"], self.max_length - 1)
        closed = np.zeros((len(tokens), int(length.max(initial=0)) + 1), tokens.dtype)
        shared = min(tokens.shape[1], closed.shape[1])
        closed[:, :shared] = tokens[:, :shared]
        closed[np.arange(len(tokens)), length] = end
        return rows.having_all({f"{self.of}.tokens": closed, f"{self.of}.length": (length + 1).astype(np.int32)})
