"""Metrics against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import TaskError
from cloze.tasks.measures.metrics import measure, spread


def answers(classes: int) -> st.SearchStrategy[tuple[int, list[tuple[int, int]]]]:
    label = st.integers(0, classes - 1)
    return st.tuples(st.just(classes), st.lists(st.tuples(label, label), min_size=1, max_size=40))


LABELS = st.integers(2, 5).flatmap(answers)


@given(LABELS)
@settings(deadline=None, max_examples=40)
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_metrics_equal_those_of_scikit_learn(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    classes, pairs = drawn
    truth, guess = np.array(pairs).T
    found = measure(truth, guess, classes)
    assert found["accuracy"] == pytest.approx(sklearn.accuracy_score(truth, guess))
    assert found["macro_f1"] == pytest.approx(sklearn.f1_score(truth, guess, average="macro", zero_division=0))
    assert found["matthews"] == pytest.approx(sklearn.matthews_corrcoef(truth, guess))
    if classes == 2:
        assert found["f1"] == pytest.approx(sklearn.f1_score(truth, guess, zero_division=0))
    assert ("f1" in found) == (classes == 2)


def test_f1_and_matthews_of_two_classes_are_those_of_the_code_that_pruned_heads() -> None:
    """classifier_scoring.py of pmichel31415/pytorch-pretrained-BERT, branch paul."""
    found = measure(np.array([0, 1, 0, 0, 1, 1, 1, 1]), np.array([0, 1, 1, 0, 1, 0, 1, 1]), 2)
    assert (found["matthews"], found["f1"]) == pytest.approx((0.4666666666666667, 0.8000000000000002))


def test_large_counts_do_not_overflow() -> None:
    truth = np.repeat([0, 1], 200_000)
    assert measure(truth, truth, 2) == {"accuracy": 1.0, "macro_f1": 1.0, "matthews": 1.0, "f1": 1.0}


def test_spread_is_the_deviation_of_a_sample() -> None:
    assert spread([{"a": 1.0}, {"a": 3.0}]) == {"a": {"mean": 2.0, "deviation": pytest.approx(2**0.5)}}
    assert spread([{"a": 1.0}]) == {"a": {"mean": 1.0, "deviation": 0.0}}


def test_no_examples_are_named() -> None:
    with pytest.raises(TaskError, match="no labelled examples"):
        measure(np.array([], np.int64), np.array([], np.int64), 2)
