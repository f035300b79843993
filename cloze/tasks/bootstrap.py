"""How sure metrics are: intervals from examples drawn again and again (Efron and Tibshirani, 1993, §13.3, the percentile method).

An interval covers only the choice of the examples. Several seeds show how much a metric varies between training runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import TaskError, counted
from cloze.rng import fold
from cloze.tasks.task import PerExample

Metrics = Callable[[Any], Mapping[str, float]]
SHARE = 0.95  # of the resamples that lies in an interval


class Interval(NamedTuple):
    """Where the middle 95 % of the resamples lie."""

    low: float
    high: float


class PairedDifference(NamedTuple):
    """By how much the second of two is higher than the first, and the interval of that."""

    value: float
    low: float
    high: float

    @property
    def sure(self) -> bool:
        """Whether all of the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0


def generator(seed: int) -> np.random.Generator:
    """What draws examples: equal seeds draw equal ones."""
    return np.random.Generator(np.random.Philox(key=fold(seed, "bootstrap")))


def intervals(per_example: PerExample, metrics: Metrics, *, resamples: int, seed: int = 0) -> dict[str, Interval]:
    """The interval of every metric over as many examples as there are, drawn with replacement `resamples` times.

    `per_example` holds an item of every example, and `metrics` makes the metrics of any of them (see `Learner.per_example`).
    """
    (samples,) = resampled([per_example], [metrics], resamples=resamples, seed=seed)
    return {name: _interval(drawn) for name, drawn in samples.items()}


def differences(
    first: tuple[PerExample, Metrics], second: tuple[PerExample, Metrics], *, resamples: int, seed: int = 0
) -> dict[str, PairedDifference]:
    """By how much the metrics of the second are higher than those of the first on the same examples, with intervals.

    Both are measured on the same draws, so that what makes an example hard for both takes no part in their difference.
    """
    (judged_one, metrics_one), (judged_two, metrics_two) = first, second
    if len(judged_one) != len(judged_two):
        raise TaskError(
            f"{len(judged_one)} and {len(judged_two)} examples: only what was measured on the same examples can be compared."
        )
    drawn_one, drawn_two = resampled([judged_one, judged_two], [metrics_one, metrics_two], resamples=resamples, seed=seed)
    whole_one, whole_two = metrics_one(judged_one), metrics_two(judged_two)
    return {
        name: PairedDifference(whole_two[name] - whole_one[name], *_interval(drawn_two[name] - drawn_one[name]))
        for name in whole_one if name in whole_two
    }  # fmt: skip


def both_right(first: NDArray[np.bool_] | None, second: NDArray[np.bool_] | None) -> float | None:
    """The share of examples that both learners answer correctly (see `Learner.right`); None where answers are more than right or
    wrong. Of the answers to VCR's questions and of their rationales this is the accuracy of Q → AR (ChenRocks/UNITER,
    `compute_accuracies` in `train_vcr.py`)."""
    return None if first is None or second is None else float((first & second).mean())


def resampled(
    per_example: Sequence[PerExample], metrics: Sequence[Metrics], *, resamples: int, seed: int
) -> list[dict[str, NDArray[np.float64]]]:
    """Every metric of every draw (resamples), for several that were judged on the same examples."""
    if resamples < 100:
        raise TaskError(f"--bootstrap {resamples}: expected at least 100 draws, usually 1000; the ends of an interval need many.")
    count = len(per_example[0])
    if count < 2:
        raise TaskError(f"bootstrap: {counted(count, 'example')}; expected at least two, better a hundred.")
    draws = generator(seed).integers(0, count, (resamples, count))
    samples = [[measure(_taken(items, index)) for index in draws] for items, measure in zip(per_example, metrics, strict=True)]
    return [{name: np.array([sample[name] for sample in side]) for name in side[0]} for side in samples]


def _taken(items: PerExample, index: NDArray[np.int64]) -> PerExample:
    return items[index] if isinstance(items, np.ndarray) else [items[i] for i in index.tolist()]


def _interval(drawn: NDArray[np.float64]) -> Interval:
    edge = 50 * (1 - SHARE)
    low, high = np.percentile(drawn, [edge, 100 - edge])
    return Interval(float(low), float(high))
