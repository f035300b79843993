"""What a step does, as data: passes of networks, with their objectives and rewriters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PassObjective:
    """An objective in a pass: `name` in the log, `key` that of its objective in `StepModule.objectives`.

    `weight` is a number or a function of the share spent; with 0 there are scores but no loss. `read` binds reading names
    to states: `hidden` of this pass, `teacher.hidden` of an earlier one; an unbound name is the state of that name of this pass.
    """

    name: str
    key: str
    weight: float | Callable[[float], float] = 1.0
    read: Mapping[str, str] = field(default_factory=dict)

    def weight_at(self, share: float) -> float:
        """The weight when `share` of the budget is spent."""
        return self.weight(share) if callable(self.weight) else self.weight


@dataclass(frozen=True)
class Rewrite:
    """A rewriter in a pass: its key in `StepModule.rewriters`, and what its readings are bound to."""

    rewriter: str
    read: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """One run of a network inside a step.

    `take` maps a field of this pass to `pass.state` or `view.field`, or a rewriter's name to a `Rewrite`. `order` is the constant
    order if the batch has no `order` field. `grad` false: no gradient, and network, heads and rewriters in eval mode (a teacher).
    A pass does not run its network if none of its states is read, because its objectives read those of earlier passes.

    Passes of one network draw their own dropout, so that two readings of the same text differ (SimCSE).
    """

    name: str
    network: str
    view: str = "main"
    take: Mapping[str, str | Rewrite] = field(default_factory=dict)
    objectives: tuple[PassObjective, ...] = ()
    order: str = "open"
    grad: bool = True
