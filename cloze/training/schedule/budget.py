"""The budget of a run and the share of it already spent. No torch.

Everything that changes during a run (learning rate, phases, evaluations) is a function of the share spent, so a
budget in seconds ends as fully decayed as one in steps.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from cloze.errors import BudgetError

Kind = Literal["steps", "tokens", "seconds", "flops", "epochs", "bytes"]

_EXAMPLES = "10m, 90s, 2h, 2000steps, 50Mtokens, 50Mbytes, 1e18flops or 3epochs"
_SECONDS = {"s": 1, "sec": 1, "seconds": 1, "m": 60, "min": 60, "minutes": 60, "h": 3600, "hours": 3600, "d": 86400,
            "days": 86400}
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SINGULAR = {"step": "steps", "token": "tokens", "flop": "flops", "epoch": "epochs", "byte": "bytes"}
_FORM = re.compile(r"(?P<number>[0-9][0-9_]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*(?P<unit>[A-Za-z]*)")


@dataclass
class Spent:
    """What a run has spent so far, summed over ranks and over resumptions.

    `tokens` are real tokens (no padding); `bytes` are bytes of their text in the corpus; `epochs` is the mean over
    the mixture's entries, weighted by their odds; `flops` are those of the networks' passes, forward and backward.
    """

    steps: int = 0
    tokens: int = 0
    examples: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    epochs: float = 0.0
    bytes: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


@dataclass(frozen=True)
class Budget:
    """An amount of one kind.

    Attributes:
        max_epochs: The most epochs; they may end a run before the amount is spent.
        setup_seconds: What is spent before the first step. Shares count from there to the whole amount.
    """

    kind: Kind
    amount: float
    max_epochs: float | None = field(default=None, repr=False)
    setup_seconds: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise BudgetError(f"budget of unknown kind {self.kind!r}. Expected one of {', '.join(get_args(Kind))}.")
        if not (math.isfinite(self.amount) and self.amount > 0):
            raise BudgetError(f"budget {self}: the amount must be a finite number above 0. Write {_EXAMPLES}.")
        if self.kind == "steps" and self.amount != int(self.amount):
            raise BudgetError(f"budget {self}: steps are whole. Write {max(1, round(self.amount))}steps.")

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read a budget such as `10m`, `2000steps` or `50Mtokens`. Small `m` is minutes, large `M` is a million.

        Raises:
            BudgetError: the text is not a budget, or its amount is not above 0.

        >>> Budget.parse("50Mtokens")
        Budget(kind='tokens', amount=50000000.0)
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise BudgetError(f"cannot read the budget {text!r}. Examples: {_EXAMPLES}.")
        amount, unit = float(match["number"].replace("_", "")), match["unit"]
        if unit in _SECONDS:
            return cls("seconds", amount * _SECONDS[unit])
        for kind in (*get_args(Kind), *_SINGULAR):
            scale = unit[: -len(kind)] if unit.endswith(kind) else None
            if scale in _SCALES:
                return cls(_SINGULAR.get(kind, kind), amount * _SCALES[scale])
        if unit in _SCALES:
            raise BudgetError(f"the budget {text!r} has no unit. Examples: {text}tokens, {text}steps, {_EXAMPLES}.")
        raise BudgetError(f"the budget {text!r} has the unknown unit {unit!r}. Examples: {_EXAMPLES}.")

    def share(self, spent: Spent) -> float:
        """The share of this budget that is spent, 0 at the start; 1 or more means the run is over."""
        share = (float(vars(spent)[self.kind]) - self.setup_seconds) / (self.amount - self.setup_seconds)
        return share if self.max_epochs is None else max(share, spent.epochs / self.max_epochs)

    def end(self, spent: Spent, *, name: bool = False) -> str:
        """Why a run has ended, with the amount of the budget if `name` is set.

        >>> Budget("seconds", 600.0, max_epochs=50.0).end(Spent(seconds=90.0, epochs=50.0))
        'all 50 passes over the text are done (budget 10m)'
        """
        if self.max_epochs is not None and spent.epochs >= self.max_epochs and vars(spent)[self.kind] < self.amount:
            return f"all {self.max_epochs:g} passes over the text are done (budget {self.typed})"
        return f"the budget of {self.words} is spent" if name else "the budget is spent"

    def part(self, share: float) -> Budget:
        """That share of it, for one of the stages of a recipe."""
        amount = self.amount * share
        return Budget(self.kind, max(1.0, round(amount)) if self.kind == "steps" else amount)

    @property
    def timed(self) -> bool:
        """Whether it limits time or operations, and not the text to read."""
        return self.kind in ("seconds", "flops")

    @property
    def repeats(self) -> bool:
        """Whether a run under this budget can be repeated bit for bit (one in seconds cannot)."""
        return self.kind != "seconds"

    @property
    def typed(self) -> str:
        """As a user types it.

        >>> Budget("seconds", 5400.0).typed, Budget("tokens", 3e7).typed, Budget("steps", 2000).typed
        ('90m', '30Mtokens', '2000steps')
        """
        if self.kind == "seconds":
            minutes, hours = self.amount / 60, self.amount / 3600
            seconds = minutes < 2 and minutes != 1
            return f"{self.amount:g}s" if seconds else f"{hours:g}h" if hours >= 2 and hours % 1 == 0 else f"{minutes:g}m"
        if self.kind in ("tokens", "bytes") and self.amount >= 1e6:
            return f"{self.amount / 1e6:g}M{self.kind}"
        return str(self)

    @property
    def words(self) -> str:
        """In words.

        >>> Budget("seconds", 90.0).words, Budget("epochs", 2.0).words, Budget("tokens", 3e7).words, Budget("steps", 1).words
        ('90 seconds', '2 epochs', '30M tokens', '1 step')
        """
        text = self.typed if self.kind != "seconds" else str(self)
        number, noun = re.fullmatch(r"(.*?)([a-z]+)", text).groups()  # type: ignore[union-attr]
        return f"{number} {noun.removesuffix('s') if number == '1' else noun}"

    def __str__(self) -> str:
        return f"{self.amount:.15g}{self.kind}"


def in_words(text: str) -> str:
    """A budget as a record holds it, in words; any other text as it is."""
    try:
        return Budget.parse(text).words
    except BudgetError:
        return text
