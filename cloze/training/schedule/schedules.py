"""Numbers that change while training, as functions of the share of the budget spent: the schedules of `Live` values. No torch.

An objective's `weight: {exponential: {start: 0.2, end: 0.1}}` is one.
"""

from __future__ import annotations

import math
from typing import Protocol

from cloze.bounds import Count, Share
from cloze.errors import RecipeError
from cloze.registry import register


class Schedule(Protocol):
    """A number as a function of the share spent."""

    def __call__(self, share: float) -> float: ...


class Course:
    """How far a schedule has come, 0 … 1: at the end when the share `until` is spent, by `stairs` equal steps if given."""

    def __init__(self, until: float, stairs: int | None) -> None:
        if not 0 < until <= 1:
            raise RecipeError(f"schedule: until {until} is not a share of the budget. Expected 0 < until <= 1.")
        if stairs is not None and stairs < 1:
            raise RecipeError(f"schedule: {stairs} stairs. Expected at least 1, or none for a smooth change.")
        self.until, self.stairs = until, stairs

    def __call__(self, share: float) -> float:
        come = min(max(share / self.until, 0.0), 1.0)
        if self.stairs is None:
            return come
        stair = min(math.floor(come * self.stairs + 1e-9), self.stairs - 1)
        return stair / max(self.stairs - 1, 1)


@register("schedule", "linear")
class LinearChange:
    """From `start` to `end` in a straight line, over the share `until`, then `end`; in `stairs` levels, or smoothly."""

    def __init__(self, start: float, end: float, *, until: Share = 1.0, stairs: Count | None = None) -> None:
        self.start, self.end, self.course = start, end, Course(until, stairs)

    def __call__(self, share: float) -> float:
        return self.start + (self.end - self.start) * self.course(share)


@register("schedule", "cubic")
class CubicChange:
    """From `start` to `end`, fast at first and ever slower, over the share `until`, then `end`; in `stairs` levels, or smoothly.

    The share of pruned weights in Zhu and Gupta (2017, §3): end + (start - end) · (1 - t)³, where t grows from 0 to 1 (power 3 of
    `PolynomialDecay` in tensorflow/model-optimization).

    >>> [CubicChange(0.0, 0.8, until=0.5)(share) for share in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.7, 0.8, 0.8]
    """

    def __init__(self, start: float, end: float, *, until: Share = 1.0, stairs: Count | None = None) -> None:
        self.start, self.end, self.course = start, end, Course(until, stairs)

    def __call__(self, share: float) -> float:
        return self.end + (self.start - self.end) * (1.0 - self.course(share)) ** 3


@register("schedule", "exponential")
class ExponentialChange:
    """From `start` to `end` by an equal factor in equal times, over the share `until`, then `end`.

    With `stairs` there are that many levels, the first of them `start` and the last `end`: SiATL's weight of the language model
    (Chronopoulou et al., 2019; alexandra-chron/siatl `trainer.py`) has one for each of 15 epochs, exp(-1.6) … exp(-2.3).

    >>> [round(ExponentialChange(0.2, 0.1, stairs=2)(share), 4) for share in (0.0, 0.49, 0.5, 1.0)]
    [0.2, 0.2, 0.1, 0.1]
    """

    def __init__(self, start: float, end: float, *, until: Share = 1.0, stairs: Count | None = None) -> None:
        if not (start > 0 and end > 0):
            raise RecipeError(f"schedule.exponential: from {start} to {end}; both must be above 0. For 0 use `linear`.")
        self.start, self.end, self.course = start, end, Course(until, stairs)

    def __call__(self, share: float) -> float:
        return float(self.start * math.exp(math.log(self.end / self.start) * self.course(share)))
