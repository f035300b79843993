"""Figures by class, confusions, calibration and thresholds, against scikit-learn and the published example of seqeval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cloze.schemes import standard
from cloze.tasks.evaluation_text import ranking_lines, short_lines
from cloze.tasks.kinds.classification import decided
from cloze.tasks.kinds.token_labelling import label_figures, measured
from cloze.tasks.measures.class_report import (
    BinaryRanking,
    Calibration,
    ClassCounts,
    Confusion,
    class_figures,
    samples_average,
    shortest_between,
)

Drawn = tuple[NDArray[np.int64], NDArray[np.float64]]


@st.composite
def classified(draw: st.DrawFn, least: int = 2, most: int = 5) -> Drawn:
    """Right classes (N,) and probabilities (N, C), with ties."""
    classes = draw(st.integers(least, most))
    rows = draw(st.lists(st.tuples(st.integers(0, classes - 1), st.integers(0, 1 << 30)), min_size=1, max_size=30))
    weights = np.array([np.random.default_rng(seed).integers(1, 4, classes) for _, seed in rows], np.float64)
    return np.array([label for label, _ in rows]), weights / weights.sum(1, keepdims=True)


def by_name(rows: Any) -> dict[str, dict[str, float]]:
    """Rows in the form of scikit-learn's dictionaries."""
    return {
        row["label"]: {"precision": row["precision"], "recall": row["recall"], "f1-score": row["f1"], "support": row["support"]}
        for row in rows
    }


def near(expected: Any) -> Any:
    return {name: pytest.approx(figures) for name, figures in expected.items() if name != "accuracy"}


@settings(deadline=None, max_examples=60)
@given(classified())
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_classes_and_confusions_are_those_of_scikit_learn(drawn: Drawn) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    truth, shares = drawn
    guess = shares.argmax(1)
    names = [f"c{number}" for number in range(shares.shape[1])]
    made = class_figures(truth, guess, shares, names)
    right, answers = [[names[number] for number in side] for side in (truth, guess)]
    expected = sklearn.classification_report(right, answers, output_dict=True, zero_division=0)
    assert by_name([*made["by_class"], *made["averages"][1:]]) == near(expected)
    micro = made["averages"][0]
    assert micro["label"] == "micro avg" and micro["support"] == len(truth)
    assert [micro[name] for name in ("precision", "recall", "f1")] == pytest.approx([(truth == guess).mean()] * 3)
    assert made["confusion"].labels == tuple(sorted({*right, *answers}))
    assert (made["confusion"].counts == sklearn.confusion_matrix(right, answers, labels=made["confusion"].labels)).all()


@settings(deadline=None, max_examples=60)
@given(classified())
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_calibration_is_that_of_scikit_learn(drawn: Drawn) -> None:
    sklearn, curves = pytest.importorskip("sklearn.metrics"), pytest.importorskip("sklearn.calibration")
    truth, shares = drawn
    made = Calibration.of(truth, shares.argmax(1), shares)
    classes = list(range(shares.shape[1]))
    given = shares[:, 1] if len(classes) == 2 else shares
    options = {"pos_label": 1} if len(classes) == 2 else {"labels": classes}
    assert made.brier == pytest.approx(sklearn.brier_score_loss(truth, given, **options))
    right, confidence = truth == shares.argmax(1), shares.max(1)
    accuracy, mean = curves.calibration_curve(right, confidence, n_bins=10)
    assert [one["accuracy"] for one in made.bins] == pytest.approx(list(accuracy))
    assert [one["confidence"] for one in made.bins] == pytest.approx(list(mean))
    examples = np.array([one["examples"] for one in made.bins])
    assert examples.sum() == len(truth)
    assert made.expected_error == pytest.approx((examples * abs(accuracy - mean)).sum() / len(truth))


@settings(deadline=None, max_examples=80)
@given(classified(most=2))
def test_the_ranking_of_two_classes_is_that_of_scikit_learn(drawn: Drawn) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    truth, scores = drawn[0] == 1, drawn[1][:, 1]
    made = BinaryRanking.of(truth, scores, "yes")
    if truth.all() or not truth.any():
        assert made is None
        return
    assert made is not None
    assert made.roc_auc == pytest.approx(sklearn.roc_auc_score(truth, scores))
    assert made.average_precision == pytest.approx(sklearn.average_precision_score(truth, scores))
    every = [sklearn.f1_score(truth, scores >= one) for one in np.unique(scores)]
    assert made.f1 == pytest.approx(max(every))
    assert sklearn.f1_score(truth, scores >= made.threshold) == pytest.approx(made.f1)


def test_a_threshold_has_as_few_digits_as_possible() -> None:
    assert shortest_between(0.2, 0.9) == 0.6 and shortest_between(0.41, 0.44) == 0.42
    assert shortest_between(0.4312, 0.43121) == pytest.approx(0.431205)
    assert shortest_between(0.5, 0.5) == 0.5


def test_the_printed_threshold_separates_the_highest_probabilities() -> None:
    below = np.nextafter(np.float32(1), np.float32(0))
    shares = np.array([1.0, below, 0.25], np.float32)
    ranking = BinaryRanking.of(np.array([True, False, False]), shares.astype(np.float64), "yes")
    assert ranking is not None
    (short,) = short_lines({"ranking": {"positive": "yes", "f1": ranking.f1, "threshold": ranking.threshold}})
    assert short == "highest F1 of 'yes': 1.0000 with --threshold 0.99999997 of predict"
    assert ranking_lines(ranking)[1] == "highest F1 of 'yes' on these rows: 1.0000 with --threshold 0.99999997"
    assert decided(np.stack([1 - shares, shares], axis=1), 0.99999997).tolist() == [1, 0, 0]


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 4).flatmap(lambda classes: st.lists(
    st.tuples(*[st.lists(st.booleans(), min_size=classes, max_size=classes)] * 2), min_size=1, max_size=20
)))  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*ill-defined")
def test_sets_of_classes_are_measured_as_by_scikit_learn(pairs: list[tuple[list[bool], list[bool]]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    truth, guess = np.array(pairs).swapaxes(0, 1)
    counts = ClassCounts.of_sets(truth, guess)
    labels = list(range(truth.shape[1]))
    p, r, f, s = sklearn.precision_recall_fscore_support(truth.astype(int), guess.astype(int), labels=labels, zero_division=0)
    occurs = np.flatnonzero(truth.any(0) | guess.any(0)).tolist()
    assert by_name(counts.rows([str(n) for n in labels])) == near({
        str(n): {"precision": p[n], "recall": r[n], "f1-score": f[n], "support": s[n]} for n in occurs
    })  # fmt: skip
    samples = sklearn.precision_recall_fscore_support(truth.astype(int), guess.astype(int), average="samples", zero_division=0)
    made = samples_average(truth, guess)
    assert [made["precision"], made["recall"], made["f1"]] == pytest.approx(list(samples[:3]))


def test_labels_of_words_are_measured_as_by_seqeval() -> None:
    """The example of seqeval's README, with its `classification_report`."""
    truth = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    guess = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    made = label_figures(truth, guess, repair="begin", closed=False)
    rows = {row["label"]: [row[name] for name in ("precision", "recall", "f1", "support")] for row in made["by_class"]}
    assert rows == {"MISC": [0.0, 0.0, 0.0, 1], "PER": [1.0, 1.0, 1.0, 1]}
    assert [[row[name] for name in row] for row in made["averages"]] == [
        ["micro avg", 0.5, 0.5, 0.5, 2], ["macro avg", 0.5, 0.5, 0.5, 2], ["weighted avg", 0.5, 0.5, 0.5, 2],
    ]
    tags = {row["label"]: (row["precision"], row["recall"], row["support"]) for row in made["tags"]}
    assert tags == {
        "B-MISC": (0.0, 0.0, 1), "B-PER": (1.0, 1.0, 1), "I-MISC": (2 / 3, 1.0, 2), "I-PER": (1.0, 1.0, 1), "O": (1.0, 4 / 5, 5),
    }
    assert made["confusion"].most_frequent(5) == [("B-MISC", "I-MISC", 1), ("O", "B-MISC", 1)]


def test_marks_without_a_kind_form_spans_as_for_seqeval() -> None:
    """The example of chakki-works/seqeval#46: two spans, one of which is found; the marks are not kinds of their own."""
    truth, guess = [[*"OOOBIIO"], [*"BIO"]], [[*"OOBIIIO"], [*"BIO"]]
    assert measured(truth, guess)["span_f1"] == 0.5
    made = label_figures(truth, guess, repair="begin", closed=False, forms=standard("BIO"))
    assert [(row["label"], row["f1"], row["support"]) for row in made["by_class"]] == [("_", 0.5, 2)]
    assert [row["label"] for row in made["tags"]] == ["B", "I", "O"]
    assert measured([[*"BMESBE"]], [[*"BMESSS"]])["span_f1"] == pytest.approx(2 * 2 / (3 + 4))  # words of running characters
    assert measured([[*"NVS"]], [[*"NVM"]])["span_f1"] == pytest.approx(2 / 3)  # parts of speech


def test_parts_of_speech_have_one_table() -> None:
    made = label_figures([["NOUN", "VERB"]], [["NOUN", "NOUN"]], repair="begin", closed=False)
    assert made["tags"] == () and [row["label"] for row in made["by_class"]] == ["NOUN", "VERB"]


def test_confusions_as_json_leave_out_what_never_occurs() -> None:
    made = Confusion.of(("a", "b", "c"), np.array([[3, 1, 0], [0, 0, 0], [0, 0, 0]]))
    assert made.record() == {"a": {"a": 3, "b": 1}, "b": {}}
