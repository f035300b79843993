"""Confidence intervals: scipy's on the same draws, differences on the same examples, how often they hold the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cloze.errors import TaskError
from cloze.tasks.bootstrap import PairedDifference, differences, generator, intervals, resampled
from cloze.tasks.kinds.token_labelling import compute_metrics, per_example
from cloze.tasks.measures.metrics import measure

stats = pytest.importorskip("scipy.stats")


def classes(pairs: Any) -> dict[str, float]:
    truth, guess = np.asarray(pairs).T
    return measure(truth, guess, 3)


def guesses(count: int, seed: int, right: float = 0.8) -> Any:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, 3, count)
    guess = np.where(draw.random(count) < right, truth, draw.integers(0, 3, count))
    return np.stack([truth, guess], axis=1)


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "matthews"])
def test_intervals_are_those_of_scipy_on_the_same_draws(metric: str) -> None:
    pairs = guesses(60, seed=3)
    found = intervals(pairs, classes, resamples=200, seed=5)[metric]
    theirs = stats.bootstrap(
        (pairs[:, 0], pairs[:, 1]), lambda truth, guess: classes(np.stack([truth, guess], axis=1))[metric], paired=True,
        vectorized=False, n_resamples=200, method="percentile", confidence_level=0.95, random_state=generator(5),
    ).confidence_interval
    assert found == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_the_interval_of_an_accuracy_is_about_as_wide_as_the_binomial_one() -> None:
    pairs = guesses(400, seed=1)
    low, high = intervals(pairs, classes, resamples=2000)["accuracy"]
    accuracy = classes(pairs)["accuracy"]
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt(accuracy * (1 - accuracy) / 400), rel=0.08)
    assert low < accuracy < high


def test_a_difference_on_the_same_examples_is_surer_than_the_intervals_of_each() -> None:
    one = guesses(200, seed=2, right=0.6)
    two = one.copy()
    wrong = np.flatnonzero(one[:, 0] != one[:, 1])[:12]
    two[wrong, 1] = two[wrong, 0]  # right wherever the first is, and in 12 more
    found = differences((one, classes), (two, classes), resamples=500)["accuracy"]
    assert found.value == pytest.approx(12 / 200)
    assert found.sure and 0 < found.low < found.value < found.high
    each = [intervals(pairs, classes, resamples=500)["accuracy"] for pairs in (one, two)]
    assert each[0].high > each[1].low, "alone they are not told apart"
    assert not differences((one, classes), (one, classes), resamples=500)["accuracy"].sure
    assert PairedDifference(0.1, -0.01, 0.2).sure is False and PairedDifference(-0.1, -0.2, -0.01).sure is True


def test_texts_are_drawn_whole_and_equal_seeds_draw_equal_texts() -> None:
    truth = [("B-PER", "O"), ("O",), ("B-LOC", "I-LOC", "O")] * 5
    guess = [("B-PER", "O"), ("B-PER",), ("B-LOC", "O", "O")] * 5
    texts = per_example(truth, guess)

    def seen(items: Sequence[Any]) -> dict[str, float]:
        assert len(items) == len(texts) and all(any(item is text for text in texts) for item in items)
        return compute_metrics(items)

    once, again, other = (resampled([texts], [seen], resamples=100, seed=seed)[0] for seed in (1, 1, 2))
    assert all(np.array_equal(once[name], again[name]) for name in once)
    assert not np.array_equal(once["span_f1"], other["span_f1"])
    low, high = intervals(texts, compute_metrics, resamples=100)["span_f1"]
    assert low < compute_metrics(texts)["span_f1"] < high


def test_too_few_draws_and_other_examples_are_refused() -> None:
    pairs = guesses(10, seed=1)
    with pytest.raises(TaskError, match="--bootstrap 10: expected at least 100 draws"):
        intervals(pairs, classes, resamples=10)
    with pytest.raises(TaskError, match="1 example; expected at least two"):
        intervals(pairs[:1], classes, resamples=100)
    with pytest.raises(TaskError, match="10 and 9 examples: only what was measured on the same examples"):
        differences((pairs, classes), (pairs[:9], classes), resamples=100)
