"""Whether two of several compared systems differ significantly, from their scores over seeds and test examples.

A score varies for two reasons: another seed trains another network, and another test set has other examples. A difference
counts only if both explain it badly:

- Over seeds, Welch's t test of the scores of the runs (Welch, 1947). It does not assume equal spreads.
- Over test examples, a paired permutation test: if two systems were equal, the scores that they have on an example could be
  exchanged. All runs of an example are exchanged together, because they share what makes the example hard.

The p value of a difference is the larger of the two, which is a test of both null hypotheses at once (Berger, 1982,
"Multiparameter hypothesis testing and acceptance sampling"). Exchanging each run on each example alone would treat the luck of a
seed as hundreds of independent observations. Over all pairs, p values are corrected by Holm's method (1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.rng import fold

Floats = NDArray[np.float64]

LEVEL = 0.05  # of false alarms, over all pairs of a comparison
DRAWS = 10_000
_ENUMERATED = 14  # examples up to which all 2^n exchanges are counted


class Summary(NamedTuple):
    """Mean, standard deviation of a sample (n - 1), and number."""

    mean: float
    deviation: float
    number: int


class Difference(NamedTuple):
    """By how much one system is better than another: the estimate, its 95 % interval, and p values.

    `seeds` and `examples` are the p values of the two tests, None where there is one run of a system, or no scores by example.
    `p` is their maximum. `least` is the least difference that such runs would detect at the level `LEVEL` without correction.
    """

    value: float
    low: float
    high: float
    seeds: float | None
    examples: float | None
    least: float | None

    @property
    def p(self) -> float:
        """The p value of both; 1 where nothing is known about seeds."""
        return 1.0 if self.seeds is None else max(self.seeds, self.examples or 0.0)


def summary(values: Sequence[float]) -> Summary:
    """Mean and deviation of some values; the deviation of one value is not known (nan).

    >>> summary([1.0, 2.0, 3.0])
    Summary(mean=2.0, deviation=1.0, number=3)
    """
    samples = np.asarray(values, np.float64)
    return Summary(float(samples.mean()), float(samples.std(ddof=1)) if len(samples) > 1 else math.nan, len(samples))


def difference(
    ours: Sequence[float], rivals: Sequence[float], examples: Sequence[tuple[Floats, Floats]] = (), *, draws: int = DRAWS,
    seed: int = 0,
) -> Difference:
    """By how much `ours` are higher than `rivals`: scores of runs, one per seed.

    `examples`: for each task, both systems' scores of its examples, each the mean over the runs (N,). The scores of the runs are
    means over tasks.
    """
    first, second = summary(ours), summary(rivals)
    value = first.mean - second.mean
    blocks = [a - b for a, b in examples]
    by_examples = exchanged(blocks, draws=draws, seed=seed) if blocks else None
    if first.number < 2 or second.number < 2:
        return Difference(value, -math.inf, math.inf, None, by_examples, None)
    error, freedom = welch(first, second)
    parts = [(float(block.var(ddof=1)) / len(block) / len(blocks) ** 2, len(block) - 1.0) for block in blocks if len(block) > 1]
    sampling = math.sqrt(sum(variance for variance, _ in parts))
    reach = quantile(1 - LEVEL / 2, freedom)
    half = quantile(1 - LEVEL / 2, freedom_of_sum([(error**2, freedom), *parts])) * math.hypot(error, sampling)
    p = 2 * beyond(abs(value) / error, freedom) if error else float(value == 0)
    return Difference(value, value - half, value + half, p, by_examples, max(reach * error, 1.96 * sampling))


def welch(first: Summary, second: Summary) -> tuple[float, float]:
    """The standard error of a difference of two means, and its degrees of freedom."""
    parts = [(sample.deviation**2 / sample.number, sample.number - 1.0) for sample in (first, second)]
    return math.sqrt(sum(variance for variance, _ in parts)), freedom_of_sum(parts)


def freedom_of_sum(parts: Sequence[tuple[float, float]]) -> float:
    """The degrees of freedom of a sum of estimated variances, each with its own (Satterthwaite, 1946); where all are zero, their
    sum."""
    total = sum(variance for variance, _ in parts)
    if not total:
        return sum(freedom for _, freedom in parts)
    return total**2 / sum(variance**2 / freedom for variance, freedom in parts)


def exchanged(blocks: Sequence[Floats], *, draws: int = DRAWS, seed: int = 0) -> float:
    """The p value of a paired permutation test: the share of exchanges whose difference is at least as large.

    A block holds the differences of one task's examples (N,); what is tested is the mean over blocks of their means. Where there
    are few examples all exchanges are counted; otherwise `draws` of them, and the given order counts as one more.
    """
    observed = abs(sum(float(block.mean()) for block in blocks)) * (1 - 1e-12)
    total = sum(len(block) for block in blocks)
    if total <= _ENUMERATED:
        signs = 1.0 - 2.0 * ((np.arange(2**total)[:, None] >> np.arange(total)) & 1)
        return float(np.mean(np.abs(_sums(blocks, signs)) >= observed))
    generator = np.random.Generator(np.random.Philox(key=fold(seed, "exchange")))
    hits, at_once = 0, 1000
    for start in range(0, draws, at_once):
        rows = min(at_once, draws - start)
        drawn = np.frombuffer(generator.bytes(rows * (total + 7) // 8 + 1), np.uint8)
        bits = np.unpackbits(drawn, count=rows * total).reshape(rows, total)
        hits += int(np.sum(np.abs(_sums(blocks, 1.0 - 2.0 * bits)) >= observed))
    return (hits + 1) / (draws + 1)


def _sums(blocks: Sequence[Floats], signs: NDArray[np.floating]) -> Floats:
    weighted = np.concatenate([block / len(block) for block in blocks])
    sums: Floats = signs @ weighted
    return sums


def holm(values: Sequence[float]) -> list[float]:
    """p values corrected for their number (Holm, 1979): the k-th smallest of n times n - k + 1, made monotonic.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, at in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = largest
    return adjusted


def beyond(t: float, freedom: float) -> float:
    """The probability of a value above t ≥ 0 under Student's distribution."""
    if math.isinf(t):
        return 0.0
    return 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(p: float, freedom: float) -> float:
    """The value of Student's distribution that a share p ≥ 0.5 of it is below."""
    low, high = 0.0, 1.0
    while beyond(high, freedom) > 1 - p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, freedom) > 1 - p else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun, 1964, 26.5.8)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below this
        return 1.0 - incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(a, b, x)


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 / (1 + d1 / (1 + d2 / …)), by Lentz's method."""
    tiny = 1e-300
    value = c = 1.0
    d = 0.0
    for n in range(400):
        m = n // 2
        if n == 0:
            term = 1.0
        elif n % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / ((1.0 + term * d) or tiny)
        c = (1.0 + term / c) or tiny
        value *= c * d
        if abs(1.0 - c * d) < 1e-15:
            break
    return value - 1.0
