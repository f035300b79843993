"""What a loss is worth: the losses of answers that need no network. No torch.

A network that guesses has the loss of `chance`, one that always gives the shares of the answers that of `single`, and one
that knows the neighbouring token, where tokens are asked, that of `pairs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Baseline:
    """Nats per answer of one objective. `pairs` is None where the answers are no tokens of running text."""

    chance: float
    single: float
    pairs: float | None = None

    def stands(self, loss: float) -> str:
        """Where a loss stands among them, in words.

        >>> Baseline(chance=8.99, single=7.07, pairs=5.31).stands(6.35)
        '0.72 under single tokens (7.07), pairs 5.31'
        """
        name = "constant answer" if self.pairs is None else "single tokens"
        gap = self.single - loss
        text = f"{abs(gap):.2f} {'under' if gap >= 0 else 'above'} {name} ({self.single:.2f})"
        return text if self.pairs is None else f"{text}, pairs {self.pairs:.2f}"

    def to_json(self) -> dict[str, float]:
        """The numbers by name, without those that are absent."""
        return {name: round(value, 4) for name, value in asdict(self).items() if value is not None}


def baselines_from(record: Mapping[str, Any] | None) -> dict[str, Baseline]:
    """The baselines of a log's `start` event; none where it has none."""
    return {name: Baseline(**values) for name, values in (record or {}).items()}
