"""Relatedness of sentences: split targets, features of pairs, and that it is learnt."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.errors import TaskError
from cloze.tasks.intrinsic.relatedness import Relatedness, expected_scores, pair_features, split_targets


def test_a_score_is_split_between_the_whole_numbers_around_it() -> None:
    np.testing.assert_allclose(split_targets([3.6]), [[0, 0, 0.4, 0.6, 0]], atol=1e-12)
    assert split_targets([1, 5]).tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    scores = np.linspace(1, 5, 41)
    np.testing.assert_allclose(split_targets(scores).sum(1), 1)
    np.testing.assert_allclose(expected_scores(split_targets(scores)), scores)
    assert expected_scores(split_targets([3.6]))[0] == pytest.approx(3.6)
    with pytest.raises(TaskError, match="1 to 5"):
        split_targets([0.5])


def test_features_are_differences_and_products_whichever_comes_first() -> None:
    u, v = np.array([[1.0, -2.0]]), np.array([[3.0, 0.5]])
    assert pair_features(u, v).tolist() == [[2.0, 2.5, 3.0, -1.0]] == pair_features(v, u).tolist()
    with pytest.raises(TaskError, match="same width"):
        pair_features(u, v[:, :1])


def test_it_learns_how_near_vectors_are_and_does_so_alike_every_time() -> None:
    chance = np.random.default_rng(0)
    first, noise = chance.standard_normal((300, 6)), chance.standard_normal((300, 6))
    distance = chance.uniform(0, 1, (300, 1))
    second, scores = first + distance * noise, 5 - 4 * distance[:, 0]
    learnt = Relatedness().fit(first[:200], second[:200], scores[:200])
    found = learnt.measure(first[200:], second[200:], scores[200:])
    assert found["pearson"] is not None and found["pearson"] > 0.75
    assert found["spearman"] is not None and found["spearman"] > 0.75
    again = Relatedness().fit(first[:200], second[:200], scores[:200])
    assert np.array_equal(again.predict(first, second), learnt.predict(first, second))
    with pytest.raises(TaskError, match="fit first"):
        Relatedness().predict(first, second)
