"""The statistics of comparisons: against scipy, against enumeration, and the rate of false alarms."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest

from cloze.comparison.answer import Scores, System, pairs_of
from cloze.comparison.design import Design, Metric, TaskFiles
from cloze.comparison.statistics import beyond, difference, exchanged, holm, incomplete_beta, quantile, summary, welch

stats = pytest.importorskip("scipy.stats")
special = pytest.importorskip("scipy.special")


@pytest.mark.parametrize(("a", "b", "x"), [(1, 0.5, 0.3), (2.3, 0.5, 0.9), (10, 0.5, 0.99), (0.5, 0.5, 0.2), (60, 0.5, 0.1)])
def test_the_incomplete_beta_function_is_that_of_scipy(a: float, b: float, x: float) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-10)


@pytest.mark.parametrize("freedom", [1.0, 2.0, 3.7, 10.0, 200.0])
def test_students_distribution_is_that_of_scipy(freedom: float) -> None:
    for t in (0.0, 0.3, 1.0, 4.0, 30.0):
        assert beyond(t, freedom) == pytest.approx(stats.t.sf(t, freedom), rel=1e-9)
    for p in (0.5, 0.9, 0.975, 0.9999):
        assert quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-7, abs=1e-9)


def test_the_test_over_seeds_is_welchs() -> None:
    ours, theirs = [0.71, 0.74, 0.69, 0.75], [0.66, 0.61, 0.70, 0.52]
    found = difference(ours, theirs)
    known = stats.ttest_ind(ours, theirs, equal_var=False)
    assert found.seeds == pytest.approx(known.pvalue, rel=1e-9)
    interval = known.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7)
    assert welch(summary(ours), summary(theirs))[1] == pytest.approx(known.df)


def test_the_interval_is_students_over_examples_where_seeds_agree_and_welchs_over_seeds_where_examples_agree() -> None:
    generator = np.random.default_rng(2)
    ours, theirs = generator.random(30) + 0.2, generator.random(30)
    found = difference([ours.mean()] * 2, [theirs.mean()] * 2, [(ours, theirs)])
    assert (found.low, found.high) == pytest.approx(stats.ttest_rel(ours, theirs).confidence_interval(0.95))
    first, second = generator.random(20), generator.random(12)  # differences on two tasks
    blocks = [(own, np.zeros(len(own))) for own in (first, second)]
    found = difference([(first.mean() + second.mean()) / 2] * 2, [0.0] * 2, blocks)
    both = stats.ttest_ind(first, -second, equal_var=False).confidence_interval(0.95)  # of the sum of their means
    assert (found.low, found.high) == pytest.approx([edge / 2 for edge in both])
    runs = [0.7, 0.72, 0.75], [0.6, 0.64, 0.61]
    found = difference(*runs, [(np.ones(9), np.ones(9))])
    assert (found.low, found.high) == pytest.approx(stats.ttest_ind(*runs, equal_var=False).confidence_interval(0.95))


def test_95_of_100_intervals_hold_the_difference() -> None:
    """400 pairs of equal systems, three runs each on 100 examples."""
    generator, held = np.random.default_rng(5), 0
    for _ in range(400):
        (grid,) = simulated(generator, tasks=1, seeds=3, examples=100, luck=0.5)
        ours, theirs = grid
        found = difference(ours.mean(1).tolist(), theirs.mean(1).tolist(), [(ours.mean(0), theirs.mean(0))], draws=10)
        held += found.low <= 0 <= found.high
    assert 0.93 <= held / 400 <= 0.98


def test_exchanges_of_few_examples_are_enumerated() -> None:
    ours, theirs = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 0.5]), np.array([0.0, 1.0, 0.0, 0.0, 0.5, 1.0])
    given = abs(np.mean(ours - theirs))
    hits = [
        abs(np.mean([x - y if keep else y - x for x, y, keep in zip(ours, theirs, kept, strict=True)])) >= given - 1e-12
        for kept in product((True, False), repeat=6)
    ]
    assert exchanged([ours - theirs]) == pytest.approx(np.mean(hits))


def test_drawn_exchanges_estimate_what_scipy_finds() -> None:
    generator = np.random.default_rng(1)
    ours, theirs = generator.random(60) + 0.08, generator.random(60)
    known = stats.permutation_test(
        (ours, theirs), lambda x, y: np.mean(x) - np.mean(y), permutation_type="samples", n_resamples=20_000, rng=2
    )
    assert exchanged([ours - theirs], draws=20_000) == pytest.approx(known.pvalue, abs=0.015)


def test_each_task_has_the_same_weight_however_many_examples_it_has() -> None:
    """Two examples of one task and four of another: the mean of the two means, by enumeration."""
    blocks = [np.array([1.0, 0.5]), np.array([0.2, -0.1, 0.3, 0.4])]
    given = sum(block.mean() for block in blocks)
    hits = [
        abs(np.mean(blocks[0] * signs[:2]) + np.mean(blocks[1] * signs[2:])) >= given - 1e-12
        for signs in (np.array(one) for one in product((1, -1), repeat=6))
    ]
    assert exchanged(blocks) == pytest.approx(np.mean(hits))


def test_holms_correction_by_hand_and_in_any_order() -> None:
    """The smallest of four is multiplied by 4, the next by 3; a larger one is never below a smaller one."""
    known = {0.005: 0.02, 0.01: 0.03, 0.03: 0.06, 0.04: 0.06}
    for order in permutations(known):
        assert holm(order) == pytest.approx([known[p] for p in order])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []


def test_one_seed_tells_nothing_apart() -> None:
    found = difference([0.9], [0.1], [(np.ones(40), np.zeros(40))])
    assert found.seeds is None and found.p == 1.0 and found.examples == pytest.approx(1e-4, rel=0.01)
    assert (found.low, found.high, found.least) == (-math.inf, math.inf, None)


def test_equal_runs_are_not_told_apart_and_constant_ones_by_their_examples() -> None:
    assert difference([0.5, 0.5], [0.5, 0.5]).p == 1.0
    few = difference([0.6, 0.6], [0.5, 0.5], [(np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0]))])
    assert few.seeds == 0.0 and few.p == few.examples == 1.0


def of_runs(scores: np.ndarray) -> Scores:
    """The scores of runs on examples, (seeds, examples)."""
    return Scores(dict(enumerate(scores.mean(1).tolist(), 1)), 0, scores.mean(0))


def simulated(generator: np.random.Generator, *, tasks: int, seeds: int, examples: int, luck: float) -> list[np.ndarray]:
    """Right answers of two systems that are one, by task: (2, seeds, examples). Each run has its own `luck`, in log odds."""
    made = []
    for _ in range(tasks):
        hard = generator.normal(0.5, 1.0, examples)
        odds = hard + generator.normal(0.0, luck, (2, seeds))[..., None]
        made.append((generator.random((2, seeds, examples)) < 1 / (1 + np.exp(-odds))).astype(np.float64))
    return made


@pytest.mark.parametrize("luck", [0.0, 0.3])
def test_one_recipe_under_two_names_is_told_apart_in_at_most_five_of_a_hundred_grids(luck: float) -> None:
    """200 grids of four tasks and three seeds; an alarm is a pair told apart on the mean or on any task."""
    generator, tasks = np.random.default_rng(3), ("t1", "t2", "t3", "t4")
    design = Design(
        [], [TaskFiles(name, "", "", "", "") for name in tasks], metrics=dict.fromkeys(tasks, Metric("accuracy", True))
    )
    alarms = naive = 0
    for _ in range(200):
        grid = simulated(generator, tasks=4, seeds=3, examples=100, luck=luck)
        systems = [
            System(name, None, {task: of_runs(own[side]) for task, own in zip(tasks, grid, strict=True)})
            for side, name in enumerate(("one", "two"))
        ]  # fmt: skip
        pairs = pairs_of(systems, design, draws=200)
        assert len(pairs) == 5
        alarms += any(pair.apart for pair in pairs)
        naive += exchanged([(own[0] - own[1]).ravel() for own in grid], draws=100) <= 0.05
    assert alarms <= 10
    assert luck == 0.0 or naive > 20, "what makes the test over seeds necessary: each run on each example exchanged alone"


def test_a_real_difference_is_told_apart_and_a_loss_counts_the_other_way() -> None:
    generator = np.random.default_rng(4)
    metrics = {"t": Metric("loss", False)}
    design = Design([], [TaskFiles("t", "", "", "", "")], metrics=metrics)
    low, high = generator.normal(1.0, 0.1, (3, 50)), generator.normal(1.4, 0.1, (3, 50))
    systems = [System(name, None, {"t": of_runs(runs)}) for name, runs in (("low", low), ("high", high))]
    (pair,) = pairs_of(systems, design, draws=1000)
    assert (pair.one, pair.two, pair.task, pair.apart) == ("low", "high", "t", True)
    assert pair.difference.value == pytest.approx(0.4, abs=0.05)
