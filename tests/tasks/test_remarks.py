"""What learned nothing is said to have learned nothing, for every kind of task."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from cloze.objectives.objective import Objective
from cloze.tasks.kinds.classification import Classifier
from cloze.tasks.kinds.multi_label import MultiLabeller
from cloze.tasks.kinds.retrieval import Retriever
from cloze.tasks.kinds.token_labelling import JudgedText, WordLabeller
from cloze.tasks.remarks import remark_on, remark_on_loss
from cloze.tasks.task import Learner

ACCURACY, ERRORS = {"accuracy": True, "macro_f1": True}, {"pearson": True, "mse": False}
TRY = (
    "Try more epochs (--set training.epochs=N), another rate (--set training.rate.peak=X) or more pre-training; for "
    "fasttext-supervised, --tune 5m"
)


def remark(per_example: Any, metrics: dict[str, float], baseline: dict[str, Any] | None, *, kind: Any = Classifier,
           weighs: bool = False, more: dict[str, bool] = ACCURACY, names: tuple[str, ...] = ()) -> str | None:  # fmt: skip
    """The remark on a result of a learner of this kind."""
    learner: Any = SimpleNamespace(
        task=SimpleNamespace(metrics=more, threshold=0.5), label_names=names,
        head=Mock(spec=Objective, weighs_classes=weighs, class_weights=None),
    )
    learner.truth_and_predictions = lambda items: kind.truth_and_predictions(learner, items)
    return remark_on(learner, per_example, metrics, baseline)


def pairs(truth: list[Any], answers: list[Any]) -> Any:
    return np.stack([np.array(truth), np.array(answers)], axis=1)


def test_one_answer_for_all_rows_is_remarked_though_it_is_better_than_another_constant() -> None:
    found = remark(pairs([0, 1, 2, 2], [2, 2, 2, 2]), {"accuracy": 0.5}, {"always": "a", "accuracy": 0.25}, weighs=True)
    weights = "; for rare classes, --set objectives[0].class_weights=balanced"
    assert found == f"one answer for all 4 examples: the network has learned nothing. {TRY}{weights}."
    assert remark(pairs([2, 2, 2], [2, 2, 2]), {"accuracy": 1.0}, {"always": "c", "accuracy": 1.0}) is None


def test_one_answer_is_seen_in_ranks_sets_words_and_numbers() -> None:
    ranked = np.array([[0, 1, 2], [1, 1, 1]])
    sets = np.array([[[1, 0], [0.9, 0.2]], [[0, 1], [0.6, 0.1]]])
    words = [JudgedText(np.array([[0, 1], [1, 1]]), None), JudgedText(np.array([[2], [1]]), None)]  # type: ignore[arg-type]
    assert str(remark(ranked, {}, None)).startswith("one answer for all 2 examples")
    assert str(remark(sets, {}, None, kind=MultiLabeller, names=("a", "b"))).startswith("one answer for all 2 examples")
    assert str(remark(words, {}, None, kind=WordLabeller)).startswith("one answer for all 2 examples")
    assert str(remark(pairs([1.0, 2.5], [1.7, 1.7]), {}, None, more=ERRORS)).startswith("one answer for all 2 examples")


def test_a_score_at_or_below_a_constant_answer_is_remarked() -> None:
    two = pairs([0, 1], [1, 0])
    below = remark(two, {"accuracy": 0.485}, {"always": "neg", "accuracy": 0.505})
    assert below == (
        f"accuracy 0.4850 is below the 0.5050 of a constant answer (always 'neg'): the network has learned nothing of use. {TRY}."
    )
    level = remark(two, {"accuracy": 0.505}, {"always": "neg", "accuracy": 0.505})
    assert level is not None and level.startswith("accuracy 0.5050 is that of a constant answer (always 'neg')")
    error = remark(two, {"pearson": 0.1, "mse": 2.81}, {"always": "2.6", "pearson": 0.0, "mse": 2.76}, more=ERRORS)
    assert error is not None and error.startswith("mse 2.8100 is above the 2.7600 of a constant answer (always '2.6')")
    parser = remark((), {"uas": 21.2 / 100}, {"always": "nmod", "uas": 26.7 / 100}, kind=Learner, more={"las": True, "uas": True})
    assert parser is not None and parser.startswith("uas 0.2120 is below the 0.2670")


def test_a_score_above_a_constant_answer_is_not_remarked() -> None:
    assert remark(pairs([0, 1, 1], [1, 1, 0]), {"accuracy": 0.6}, {"always": "a", "accuracy": 0.5}) is None
    assert remark(pairs([0, 1], [1, 0]), {"pearson": 0.1, "mse": 2.0}, {"always": "2", "mse": 2.7}, more=ERRORS) is None
    assert remark((), {"mrr": 0.2}, None, kind=Learner, more={"mrr": True}) is None


def test_right_answers_that_are_all_the_same_say_nothing_of_a_network() -> None:
    always = {"always": "2", "pearson": 0.0, "mse": 1.0}
    assert remark(pairs([1, 1], [3, 4]), {"pearson": 0.0, "mse": 6.5}, always, more=ERRORS) is None
    assert remark(pairs([1], [3]), {"pearson": 0.0, "mse": 4.0}, always, more=ERRORS) is None


def test_figures_of_queries_are_no_answers() -> None:
    by_query = np.array([[0.5, 0.25, 1.0], [1.0, 0.25, 1.0]])
    assert remark(by_query, {"mrr": 0.75}, None, kind=Retriever, more={"mrr": True}) is None


@pytest.mark.parametrize("loss", [math.log(2), 0.6921])
def test_a_loss_of_equal_probabilities_is_remarked(loss: float) -> None:
    assert remark_on_loss(loss, 2) == (
        f"the training loss of {loss:.4f} is that of equal probabilities for 2 classes (ln 2 = 0.6931): "
        f"the network has not begun to tell them apart. {TRY}."
    )


def test_another_loss_is_not_remarked() -> None:
    assert remark_on_loss(0.68, 2) is None and remark_on_loss(0.0, 1) is None
    assert remark_on_loss(0.9, 2) is None, "the last batch of a network that is sure and once wrong"
