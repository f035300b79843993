"""The best tree over the words of a sentence, against all trees; attachment scores."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cloze.tasks.kinds.dependency_parsing import CONTENT, compute_metrics, constant, per_example
from cloze.tasks.kinds.trees import best_tree


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
    found = compute_metrics([per_example(truth, guess), per_example(truth, truth)])
    assert found == pytest.approx({
        "las": 5 / 8, "uas": 6 / 8, "clas": 2 * 4 / (6 + 6), "las_with_subtypes": 5 / 8, "las_without_punct": 4 / 6,
        "uas_without_punct": 5 / 6,
    })  # fmt: skip
    subtype = compute_metrics([per_example(((2, 0), ("nsubj:pass", "root")), ((2, 0), ("nsubj", "root")))])
    assert (subtype["las"], subtype["las_with_subtypes"], subtype["uas"]) == (1.0, 0.5, 1.0)


def official(gold: list[list[tuple[int, str]]], system: list[list[tuple[int, str]]]) -> dict[str, float]:
    """LAS, UAS and CLAS as the evaluation of CoNLL 2018 defines them, where both files have the same words."""
    words = [(g, s) for a, b in zip(gold, system, strict=True) for g, s in zip(a, b, strict=True)]
    base = [((g[0], g[1].split(":")[0]), (s[0], s[1].split(":")[0])) for g, s in words]
    own = [g[1] in CONTENT for g, _ in base]
    right = sum(g == s for (g, s), content in zip(base, own, strict=True) if content)
    precision = right / max(sum(s[1] in CONTENT for _, s in base), 1)
    recall = right / max(sum(own), 1)
    return {
        "las": sum(g == s for g, s in base) / len(base), "uas": sum(g[0] == s[0] for g, s in base) / len(base),
        "clas": 2 * precision * recall / (precision + recall) if right else 0.0,
        "las_with_subtypes": sum(g == s for g, s in words) / len(words),
    }  # fmt: skip


def test_attachment_scores_are_those_of_conll_2018_on_trees_of_every_kind() -> None:
    chance = np.random.default_rng(0)
    names = ["nsubj", "nsubj:pass", "obj", "case", "punct", "flat:name", "flat", "root", "det", "unheard:of"]
    for trial in range(300):
        sizes = chance.integers(1, 8, int(chance.integers(1, 6)))
        gold, system = (
            [[(int(chance.integers(0, size + 1)), str(chance.choice(names))) for _ in range(size)] for size in sizes]
            for _ in range(2)
        )
        if trial % 2:  # mostly right
            pairs = [list(zip(*both, strict=True)) for both in zip(gold, system, strict=True)]
            system = [[own if chance.random() < 0.8 else other for own, other in one] for one in pairs]
        if trial % 10 == 0:
            system = gold
        sides = ([tuple(zip(*one, strict=True)) for one in side] for side in (gold, system))
        found = compute_metrics([per_example(*both) for both in zip(*sides, strict=True)])
        expected = official(gold, system)
        assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_the_constant_answer_hangs_every_word_on_the_one_behind_it() -> None:
    found = constant("det", [((2, 3, 0), ("det", "nsubj", "root")), ((0,), ("root",))])
    assert found["uas"] == 1.0 and found["las"] == 3 / 4
