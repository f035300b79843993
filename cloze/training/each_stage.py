"""A course of the rate that begins again whenever more of a network begins to move."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from cloze.training.movement import Unfreezing


class EachStage:
    """`course` from its beginning in every stage (ULMFiT's code calls `fit` for each: fastai `train_clas.py`).

    `starts` are the shares of the run at which stages begin, 0 first.

    >>> EachStage(lambda share, steps: share, [0.0, 0.25])(0.625)
    0.5
    """

    def __init__(self, course: Callable[[float, int | None], float], starts: Sequence[float]) -> None:
        self.course, self.starts = course, [*starts, 1.0]

    def __call__(self, share: float, nominal_steps: int | None = None) -> float:
        """The rate when a share of the run is over."""
        stage = min(bisect_right(self.starts, share), len(self.starts) - 1)
        begin, end = self.starts[stage - 1], self.starts[stage]
        return self.course((share - begin) / (end - begin), nominal_steps)


def stage_starts(unfreezing: Unfreezing, groups: int, *, epochs: int, per_epoch: int) -> list[float]:
    """The shares of a run of `epochs` times `per_epoch` steps at which other depth groups begin to move; 0 is the first."""
    starts, before = [], None
    steps = epochs * per_epoch
    for step in range(steps):
        moving = unfreezing.moving(groups, epochs=step // per_epoch + step % per_epoch / per_epoch, share=step / steps)
        if moving != before:
            starts.append(step / steps)
        before = moving
    return starts
