"""Metrics of coreference: equal to the official scorers, the best assignment, and sums over documents."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from cloze.tasks.measures.chains import RATIOS, best_total, compute_metrics, count_agreement, rows_by_metric

#: Right chains and others by document, and what perl prints for all documents: numerator and denominator of recall and precision,
#: by conll/reference-coreference-scorers 8.01 (muc, bcub, ceafe, ceafm, identification of mentions) and, for LEA, by
#: ns-moosavi/LEA-coreference-scorer. The last four are drawn at random.
SCORED: dict[str, tuple[Any, Any, dict[str, list[float]]]] = {
    "the same": (
        [[[[0, 1], [3, 3]], [[4, 4], [6, 8]]]],
        [[[[0, 1], [3, 3]], [[4, 4], [6, 8]]]],
        {
            "muc": [2, 2, 2, 2], "b_cubed": [4, 4, 4, 4], "ceaf_e": [2, 2, 2, 2],
            "ceaf_m": [4, 4, 4, 4], "lea": [4, 4, 4, 4], "mentions": [4, 4, 4, 4],
        },
    ),
    "one chain": (
        [[[[0, 1], [3, 3]], [[4, 4], [6, 8]]]],
        [[[[0, 1], [3, 3], [4, 4], [6, 8]]]],
        {
            "muc": [2, 2, 2, 3], "b_cubed": [4, 4, 2, 4], "ceaf_e": [0.666666666666667, 2, 0.666666666666667, 1],
            "ceaf_m": [2, 4, 2, 4], "lea": [4, 4, 1.33333333333333, 4], "mentions": [4, 4, 4, 4],
        },
    ),
    "other mentions": (
        [[[[0, 1], [3, 3]], [[4, 4], [6, 8]]]],
        [[[[0, 0], [3, 3]], [[4, 5], [6, 8]]]],
        {
            "muc": [0, 2, 0, 2], "b_cubed": [1, 4, 1, 4], "ceaf_e": [1, 2, 1, 2],
            "ceaf_m": [2, 4, 2, 4], "lea": [0, 4, 0, 4], "mentions": [2, 4, 2, 4],
        },
    ),
    "singletons": (
        [[[[0, 1], [3, 3]], [[4, 4]], [[6, 8]]]],
        [[[[0, 1]], [[3, 3]], [[4, 4]], [[5, 5], [6, 8]]]],
        {
            "muc": [0, 1, 0, 1], "b_cubed": [3, 4, 3.5, 5], "ceaf_e": [2.33333333333333, 3, 2.33333333333333, 4],
            "ceaf_m": [3, 4, 3, 5], "lea": [1, 4, 1, 5], "mentions": [4, 4, 4, 5],
        },
    ),
    "Luo": (
        [[[[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]], [[5, 5], [6, 6]], [[7, 7], [8, 8], [9, 9], [10, 10], [11, 11]]]],
        [[[[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]], [[5, 5], [6, 6], [7, 7], [8, 8], [9, 9], [10, 10], [11, 11]]]],
        {
            "muc": [9, 9, 9, 10], "b_cubed": [12, 12, 9.14285714285714, 12], "ceaf_e": [1.83333333333333, 3, 1.83333333333333, 2],
            "ceaf_m": [10, 12, 10, 12], "lea": [12, 12, 8.66666666666667, 12], "mentions": [12, 12, 12, 12],
        },
    ),
    "random 0": (
        [
            [[[1, 2], [3, 4], [9, 9], [13, 13]], [[0, 0], [3, 3], [5, 6], [7, 8], [10, 10], [10, 12]]],
            [[[1, 3], [6, 6], [10, 12]], [[1, 1], [5, 5], [9, 9]]],
        ],
        [[[[13, 13]]], [[[0, 0], [1, 3], [5, 5]], [[6, 6], [10, 10]], [[6, 8]], [[4, 4]]]],
        {
            "muc": [0, 12, 0, 3], "b_cubed": [1.25, 16, 2.16666666666667, 8],
            "ceaf_e": [1.13333333333333, 4, 1.13333333333333, 5],
            "ceaf_m": [3, 16, 3, 8], "lea": [0, 16, 0, 8], "mentions": [4, 16, 4, 8],
        },
    ),
    "random 1": (
        [[[[0, 0], [6, 8]], [[0, 2], [10, 12]], [[3, 5], [13, 14]]]],
        [[[[0, 0], [0, 2], [9, 9], [10, 12], [13, 14]], [[3, 5]]]],
        {
            "muc": [1, 3, 1, 4], "b_cubed": [3.5, 6, 2.2, 6], "ceaf_e": [1.23809523809524, 3, 1.23809523809524, 2],
            "ceaf_m": [3, 6, 3, 6], "lea": [2, 6, 0.5, 6], "mentions": [5, 6, 5, 6],
        },
    ),
    "random 2": (
        [[[[5, 7]]], [[[2, 2], [8, 8]], [[5, 5], [5, 7]]], [[[8, 9]], [[0, 0]]]],
        [[[[5, 7], [11, 11]]], [[[5, 5]], [[2, 2]], [[10, 12]]], [[[0, 0]], [[3, 5], [8, 9]]]],
        {
            "muc": [0, 2, 0, 2], "b_cubed": [4, 7, 4, 8], "ceaf_e": [3.66666666666667, 5, 3.66666666666667, 6],
            "ceaf_m": [5, 7, 5, 8], "lea": [1, 7, 1, 8], "mentions": [5, 7, 5, 8],
        },
    ),
    "random 3": (
        [
            [[[0, 2], [7, 7]], [[3, 5], [6, 6]], [[0, 0], [7, 9]]],
            [[[7, 7]]],
            [[[0, 2]], [[5, 5]], [[3, 3], [3, 4], [6, 6], [7, 8]]],
        ],
        [
            [[[3, 5], [6, 6]], [[0, 2]], [[0, 0]], [[7, 7]]],
            [[[0, 1], [4, 6], [8, 8], [8, 9]], [[2, 3], [7, 7]]],
            [[[0, 2], [3, 3]]],
        ],
        {
            "muc": [1, 6, 1, 6], "b_cubed": [5.75, 13, 6.5, 13], "ceaf_e": [3.66666666666667, 7, 3.66666666666667, 7],
            "ceaf_m": [6, 13, 6, 13], "lea": [2, 13, 2, 13], "mentions": [8, 13, 8, 13],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCORED)
def test_every_metric_equals_that_of_the_official_scorers(name: str) -> None:
    truth, guess, scored = SCORED[name]
    counts = np.array([count_agreement(*pair) for pair in zip(truth, guess, strict=True)])
    for ratio, row in zip(RATIOS, counts.sum(0), strict=True):
        assert row.tolist() == pytest.approx(scored[ratio], abs=1e-9), ratio
    metrics = compute_metrics(counts)
    for ratio, (found, of, correct, claimed) in scored.items():
        f1 = 2 * found * correct / (found * claimed + correct * of) if found * correct else 0.0
        assert metrics[ratio] == pytest.approx(f1, abs=1e-9)
    assert metrics["conll"] == pytest.approx((metrics["muc"] + metrics["b_cubed"] + metrics["ceaf_e"]) / 3)


def test_documents_without_chains_score_nothing_and_sums_are_over_documents() -> None:
    nothing = count_agreement([], [])
    assert nothing.tolist() == [[0.0] * 4] * 6 and set(compute_metrics(nothing[None]).values()) == {0.0}
    one = count_agreement([[(0, 0), (2, 2)]], [[(0, 0), (2, 2)]])
    missed = count_agreement([[(0, 0), (2, 2)]], [])
    assert set(compute_metrics(np.array([one, nothing])).values()) == {1.0}
    assert rows_by_metric(np.array([one, missed]))["muc"] == {"recall": 0.5, "precision": 1.0, "f1": pytest.approx(2 / 3)}


@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (2, 5), (5, 2), (4, 4), (6, 5)])
def test_the_best_assignment_is_the_best_of_all(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(shape))
    for gains in (rng.random(shape), rng.integers(0, 3, shape).astype(float)):
        short = gains if shape[0] <= shape[1] else gains.T
        every = itertools.permutations(range(short.shape[1]), short.shape[0])
        best = max(sum(short[row, column] for row, column in enumerate(columns)) for columns in every)
        assert best_total(gains) == pytest.approx(best)


def test_the_best_assignment_of_many_chains_is_that_of_scipy() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    gains = np.random.default_rng(0).random((60, 80)) ** 3
    assert best_total(gains) == pytest.approx(gains[optimize.linear_sum_assignment(gains, maximize=True)].sum())
