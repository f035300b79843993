"""How many of the texts that a task read were too long for the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class CutCounts:
    """How many texts were read, how many of them were too long, and how many tokens these lost at their ends."""

    texts: int = 0
    cut: int = 0
    tokens: int = 0

    def add(self, lost: Sequence[int]) -> None:
        """Count some texts by the tokens that each lost."""
        self.texts += len(lost)
        self.cut += sum(tokens > 0 for tokens in lost)
        self.tokens += sum(lost)

    def remark(self, what: str = "texts") -> list[str]:
        """A sentence on the texts that were cut; none if all were read whole."""
        return [
            f"{self.cut} of {self.texts} {what} are longer than the network reads and lost their end, {self.tokens:,} tokens in "
            "all"
        ] if self.cut else []  # fmt: skip
