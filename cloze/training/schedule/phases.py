"""Phases: values that change when a share of the budget is spent. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from cloze.errors import RecipeError

MAY_SET = (
    "length, batch, odds.<entry>, networks.<name>.train, bases of rotary positions such as networks.main.positions.base, and "
    "dropouts such as networks.main.dropout"
)


def may_set(path: str) -> bool:
    """Whether a phase may set the value of a path: of the data, the mixture, what is trained, rotary positions, or a dropout."""
    data = path in ("length", "batch") or path.startswith("odds.")
    return data or sets_train(path) or sets_base(path) or sets_dropout(path)


def sets_base(path: str) -> bool:
    """Whether a path names a base of the rotary positions of a network."""
    names = path.split(".")
    return names[0] in ("network", "networks") and "positions" in names and names[-1] in ("base", "local_base")


def sets_train(path: str, network: str | None = None) -> bool:
    """Whether a path names the `train` of a network, of any network or of this one."""
    first, *inner = path.split(".")
    if first == "network":
        return inner == ["train"]
    return first == "networks" and len(inner) == 2 and inner[1] == "train" and network in (None, inner[0])


def sets_dropout(path: str) -> bool:
    """Whether a path names a dropout: of a network or of a head, by an argument whose name ends so, or one of several rates."""
    names = path.split(".")
    rates = names[-1].endswith("dropout") or (len(names) > 2 and names[-2] == "dropout")
    return len(names) > 1 and rates and names[0] != "odds"


@dataclass(frozen=True)
class SchedulePhase:
    """Values that hold until the share `until` of the budget is spent.

    `set` maps value paths to values: `length`, `batch`, `odds.<entry>`, `networks.<name>.train`, bases of positions, dropouts.
    `rates` holds the rate of each dropout of the step by its module's name, `positions` the rotary positions of networks by name;
    nothing if no phase sets any.
    """

    until: float = 1.0
    set: Mapping[str, Any] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    positions: Mapping[str, Any] = field(default_factory=dict)


def phases_from_shares(parts: Sequence[tuple[float, Mapping[str, Any]]]) -> tuple[SchedulePhase, ...]:
    """Phases from (size, values) in order; sizes in any one unit (share, steps, epochs) become shares of their sum.

    Raises:
        RecipeError: a size is not above 0, or a value path is not one that a phase may set.

    >>> [phase.until for phase in phases_from_shares([(9, {"length": 128}), (1, {"length": 512})])]
    [0.9, 1.0]
    """
    sizes = [float(size) for size, _ in parts]
    for index, (size, values) in enumerate(parts):
        if not size > 0:
            raise RecipeError(f"schedule[{index}]: the phase has the size {size}. Expected a number above 0.")
        for path in values:
            if not may_set(path):
                raise RecipeError(f"schedule[{index}].set.{path}: a phase cannot set this value. It may set: {MAY_SET}.")
    total = sum(sizes)
    ends = [end / total for end in accumulate(sizes)]
    return tuple(SchedulePhase(1.0 if i == len(parts) - 1 else ends[i], dict(parts[i][1])) for i in range(len(parts)))


def phase_at(phases: Sequence[SchedulePhase], share: float) -> int:
    """The index of the phase of a step that starts when `share` is spent; the last phase from 1 on."""
    return next((i for i, phase in enumerate(phases) if share < phase.until), max(len(phases) - 1, 0))
