"""What a quality costs: scores against what pre-training spent, over several budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np


class Cost(NamedTuple):
    """What a run of pre-training spent."""

    tokens: float
    flops: float
    seconds: float


class Costed(Protocol):
    """What was trained at some cost, with scores (`answer.System`)."""

    @property
    def name(self) -> str:
        """The name of what was trained, the same at every budget."""
        ...

    @property
    def cost(self) -> Cost | None:
        """What its pre-training spent; None where it had none."""
        ...

    def overall(self, tasks: Sequence[str]) -> Sequence[float]:
        """The mean score over the tasks, of each seed."""
        ...


class Point(NamedTuple):
    """A cost and the score that it bought."""

    cost: Cost
    score: float


@dataclass(frozen=True)
class Reached:
    """The cost of reaching the score `quality`, by the name of a system; None where its largest budget does not.

    `points` are the means of every system at its budgets, in ascending order. `wanted`: the user named the quality.
    """

    quality: float
    points: Mapping[str, Sequence[Point]]
    wanted: bool = False

    def cost(self, name: str) -> Cost | None:
        """What a system spends until it has the quality, interpolated between budgets on a logarithmic scale."""
        return cost_to_reach(self.points[name], self.quality)

    def data(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "quality": self.quality,
            "cost": {name: None if (cost := self.cost(name)) is None else cost._asdict() for name in self.points},
            "points": {
                name: [{**point.cost._asdict(), "score": point.score} for point in curve] for name, curve in self.points.items()
            },
        }


def reached(systems: Sequence[Costed], tasks: Sequence[str], *, quality: float | None = None) -> Reached | None:
    """The costs of the mean over tasks; the quality is by default the highest that every system reaches."""
    points: dict[str, list[Point]] = {}
    for system in systems:
        if system.cost is not None and (scores := system.overall(tasks)):
            points.setdefault(system.name, []).append(Point(system.cost, float(np.mean(scores))))
    if not points:
        return None
    in_order = {name: sorted(curve, key=lambda point: point.cost.tokens) for name, curve in points.items()}
    target = min(max(point.score for point in curve) for curve in in_order.values()) if quality is None else quality
    return Reached(target, in_order, quality is not None)


def cost_to_reach(points: Sequence[Point], quality: float) -> Cost | None:
    """The cost at which a score is first reached: that of the first point that has it, or between it and the one before."""
    for number, point in enumerate(points):
        if point.score < quality:
            continue
        before = points[number - 1] if number else None
        if before is None or point.score == before.score:
            return point.cost
        share = (quality - before.score) / (point.score - before.score)
        return Cost(*(
            math.exp(math.log(low) + share * (math.log(high) - math.log(low))) if low > 0 and high > 0 else high
            for low, high in zip(before.cost, point.cost, strict=True)
        ))  # fmt: skip
    return None
