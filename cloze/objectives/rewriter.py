"""The contract of rewriters: states of an earlier pass become fields of a later one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from cloze.batch import Batch


class Rewriter(nn.Module, ABC):
    """A module between two passes.

    `takes` are the batch fields it needs, `optional` those it uses if they are present, `reads` the names of the states it reads,
    and `gives` the fields that it makes. `replaces`: it replaces tokens, and the later pass learns to detect them. `keeps`: it
    gives rows of its own, next to which the later pass has only these fields of the view; None: it has all.
    """

    takes: frozenset[str]
    optional: frozenset[str] = frozenset()
    reads: tuple[str, ...]
    gives: frozenset[str]
    replaces: ClassVar[bool] = False
    keeps: ClassVar[frozenset[str] | None] = None

    @abstractmethod
    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The fields that it gives."""

    def expected(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Fields of the sizes of those that it will give, for counting operations; none if it changes no size."""
        return {}
