"""The facts that a fit to a budget depends on, and the values that it changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class BudgetFacts(NamedTuple):
    """The tokens that the budget pays for, the tokens of the training text, and whether the exported network is a trained one
    that the run continues. `updates`: those of a budget in steps."""

    budget_tokens: float
    text_tokens: int
    continued: bool = False
    updates: int | None = None


@dataclass(frozen=True)
class ChangedValue:
    """One changed value: its path, the published value, the fitted value, and the reason."""

    path: str
    published: Any
    fitted: Any
    why: str

    @property
    def override(self) -> str:
        """As `--set` takes it."""
        return f"{self.path}={_written(self.fitted)}"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_written(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def as_integer(number: float | None) -> float | None:
    """A number as a recipe writes it: an integer if it is one."""
    return int(number) if number is not None and number == int(number) else number
