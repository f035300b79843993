"""A linear model that also learns from texts without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.errors import TaskError
from cloze.tasks.linear.fit import fit_linear
from cloze.tasks.linear.model import load_linear
from cloze.tasks.linear.unlabelled import fit_with_texts, learns_from_texts
from cloze.tasks.linear.vectors import Scaling, fit_vectors
from cloze.tasks.task import task
from cloze.tasks.texts import LabelledTexts

pytest.importorskip("sklearn")

KIND = task("sentence_classification")
SEA, LAND = (
    ["boat", "quay", "tide", "gull", "sail", "anchor", "harbour", "crane", "rope", "mast"],
    ["oven", "bread", "flour", "garden", "river", "stone", "cart", "market", "field", "barn"],
)


def examples(texts: list[str], answers: list[str] | None = None) -> Any:
    return LabelledTexts(texts, None, answers, "rows.tsv", tuple(range(1, len(texts) + 1)))


def drawn(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Texts of four words of one topic, and the topics."""
    draws = np.random.default_rng(seed)
    topics = [("sea", "land")[number % 2] for number in range(count)]
    words = {"sea": SEA, "land": LAND}
    return [" ".join(draws.choice(words[topic], 4, replace=False)) for topic in topics], topics


def test_words_that_few_labelled_rows_have_are_learned_from_texts_without_labels() -> None:
    draws = np.random.default_rng(3)
    topics = [("sea", "land")[number % 2] for number in range(20)]
    train = examples([str(draws.choice({"sea": SEA, "land": LAND}[topic])) for topic in topics], topics)
    test = examples([*SEA, *LAND], ["sea"] * 10 + ["land"] * 10)
    learned = fit_with_texts(KIND, train, examples(drawn(400, 1)[0]))
    assert learned.linear.measure(test)["accuracy"] == 1.0 > fit_linear(KIND, train).measure(test)["accuracy"]
    assert learned.linear.fit.texts == 400 and learned.linear.fit.bayes > 0


def test_answers_to_training_rows_are_those_of_weights_that_have_not_seen_them() -> None:
    texts, topics = drawn(40, 2)
    answers = ["sea" if topic == "land" else "land" for topic in topics[:1]] + topics[1:]  # the first label is wrong
    train = examples(texts, answers)
    learned = fit_with_texts(KIND, train, examples(drawn(200, 4)[0]))
    right = learned.linear.task.targets(train)[0]
    assert learned.held.shape == (40, 2) and learned.held[0].argmax() != right


def test_without_texts_it_is_naive_bayes_and_regression_of_the_rows_alone(tmp_path: Path) -> None:
    texts, topics = drawn(60, 6)
    train = examples(texts, topics)
    learned = fit_with_texts(KIND, train, examples([]))
    assert learned.linear.fit.texts == 0
    assert learned.linear.measure(examples(*drawn(50, 7)))["accuracy"] == 1.0
    learned.linear.save(tmp_path)
    again = load_linear(tmp_path, KIND)
    assert again is not None and again.fit == learned.linear.fit
    np.testing.assert_array_equal(again.outputs(train), learned.linear.outputs(train))


def test_only_one_of_several_classes_of_a_text_is_learned_from_texts() -> None:
    assert learns_from_texts(KIND.linear(("a", "b"))) and not learns_from_texts(None)
    assert not learns_from_texts(task("regression").linear())
    with pytest.raises(TaskError, match="regression: learns nothing from texts without labels"):
        fit_with_texts(task("regression"), examples(["a"], ["1"]), examples(["b"]))


def test_vectors_are_classified_as_by_scikit_learn_and_held_answers_ignore_the_own_row() -> None:
    from sklearn.linear_model import LogisticRegression

    draws = np.random.default_rng(8)
    targets = np.arange(60) % 3
    vectors = (draws.normal(size=(60, 5)) + np.eye(5)[targets] * 3).astype(np.float32)
    names = [("a", "b", "c")[number] for number in targets]
    train = examples(["x"] * 60, names)
    linear = KIND.linear(("a", "b", "c"))
    scaling = Scaling.of(vectors)
    model, held = fit_vectors(linear, train, vectors, scaling)
    rows = (vectors - vectors.mean(0)) / vectors.std(0) / np.sqrt(5)
    expected = [LogisticRegression(C=constant).fit(rows, targets).predict_proba(rows) for constant in (1.0, 10.0, 100.0)]
    assert min(np.abs(model.outputs(vectors, train) - one).max() for one in expected) < 2e-3  # coefficients are float16
    assert (model.outputs(vectors, train).argmax(1) == targets).mean() > 0.9
    wrong = train.labels.copy()
    wrong[0] = "b"
    _, other = fit_vectors(linear, examples(["x"] * 60, wrong), vectors, scaling)
    np.testing.assert_allclose(other[0], held[0], atol=1e-6)  # its own label is not seen
