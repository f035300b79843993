"""The best tree over the words of a sentence, against all trees; attachment scores."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cloze.tasks.parser import constant, figures, judged
from cloze.tasks.trees import best_tree


def is_tree(heads: tuple[int, ...]) -> bool:
    """One word hangs on the root, and every word reaches it."""
    if heads.count(0) != 1:
        return False
    for at in range(1, len(heads) + 1):
        for _ in heads:
            at = heads[at - 1] if at else 0
        if at:
            return False
    return True


@pytest.mark.parametrize(("count", "trials"), [(1, 3), (2, 20), (3, 60), (4, 60), (5, 30)])
def test_the_tree_is_the_best_of_all_trees(count: int, trials: int) -> None:
    every = np.array([heads for heads in product(range(count + 1), repeat=count) if is_tree(heads)])
    assert len(every) == count ** (count - 1)  # Cayley's formula for rooted trees
    draw = np.random.default_rng(count)
    for number in range(trials):
        scores = draw.normal(size=(count, count + 1)) * (1 if number % 3 else 40)
        if number % 4 == 0:
            scores[:, 0] += 30  # every word would hang on the root
        if number % 5 == 0:
            scores = np.where(scores > 0, scores, -np.inf) if number % 2 else scores.round()
        np.fill_diagonal(scores[:, 1:], -np.inf if number % 2 else 99.0)
        values = scores[np.arange(count), every].sum(1)
        found = best_tree(scores)
        assert scores[np.arange(count), found].sum() == pytest.approx(values.max()) or not np.isfinite(values.max())
        assert is_tree(tuple(found.tolist()))


def test_a_long_sentence_has_a_tree() -> None:
    scores = np.random.default_rng(0).normal(size=(120, 121))
    assert is_tree(tuple(best_tree(scores).tolist())) and best_tree(np.zeros((0, 1))).tolist() == []


def test_attachment_scores_count_punctuation_or_leave_it_out() -> None:
    truth = ((2, 0, 2, 2), ("nsubj", "root", "obj", "punct"))
    guess = ((2, 0, 1, 3), ("obj", "root", "obj", "punct"))
    found = figures([judged(truth, guess), judged(truth, truth)])
    assert found == pytest.approx({"las": 5 / 8, "uas": 6 / 8, "las_without_punct": 4 / 6, "uas_without_punct": 5 / 6})
    subtype = judged(((2, 0), ("nsubj:pass", "root")), ((2, 0), ("nsubj", "root")))
    assert figures([subtype])["las"] == 0.5 and figures([subtype])["uas"] == 1.0


def test_the_constant_answer_hangs_every_word_on_the_one_behind_it() -> None:
    found = constant("det", [((2, 3, 0), ("det", "nsubj", "root")), ((0,), ("root",))])
    assert found["uas"] == 1.0 and found["las"] == 3 / 4
