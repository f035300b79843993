"""Precision and recall of the most probable labels, against the sums of fastText's meter."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.errors import TaskError
from cloze.tasks.measures.label_sets import sets_at_most
from cloze.tasks.measures.metrics import at_most, ks_of, ranks_of


def test_one_label_per_text() -> None:
    shares = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [0.1, 0.7, 0.2]])
    rank = ranks_of(shares, np.array([1, 1, 1]))
    assert rank.tolist() == [1, 2, 0]
    assert at_most(rank, [1, 2, 5], 3) == {
        "precision_at_1": 1 / 3, "recall_at_1": 1 / 3, "precision_at_2": 2 / 6, "recall_at_2": 2 / 3,
        "precision_at_5": 3 / 9, "recall_at_5": 1.0,
    }  # fmt: skip


def test_several_labels_per_text_are_counted_together_and_texts_without_any_are_left_out() -> None:
    given = [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    shares = [[0.9, 0.1, 0.5], [0.3, 0.2, 0.1], [0.5, 0.5, 0.5]]
    assert sets_at_most(given, shares, [1, 2]) == {
        "precision_at_1": 1 / 2, "recall_at_1": 1 / 3, "precision_at_2": 1 / 4, "recall_at_2": 1 / 3,
    }


def test_less_than_one_label_is_refused() -> None:
    assert ks_of([5, 1, 5]) == (5, 1)
    with pytest.raises(TaskError, match="--at 0: expected whole numbers from 1 on"):
        ks_of([0])
