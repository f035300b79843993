"""Which words belong together by their labels, and how many such spans were found."""

from __future__ import annotations

import pytest

from cloze.tasks.spans import span_f1, spans


@pytest.mark.parametrize(("labels", "expected"), [
    ("O B-PER I-PER O", {(1, 3, "PER")}),
    ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
    ("I-PER I-PER O I-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),  # I- begins where nothing of its kind is open
    ("B-PER I-LOC", {(0, 1, "PER"), (1, 2, "LOC")}),
    ("B-PER I-PER E-PER S-LOC I-LOC", {(0, 3, "PER"), (3, 4, "LOC"), (4, 5, "LOC")}),
    ("B-PER I-PER L-PER U-LOC L-LOC", {(0, 3, "PER"), (3, 4, "LOC"), (4, 5, "LOC")}),  # BILOU
    ("U-PER U-PER O L-PER L-PER", {(0, 1, "PER"), (1, 2, "PER"), (3, 4, "PER"), (4, 5, "PER")}),
    ("L'avion U -PER", {(0, 1, "L'avion"), (1, 2, "U"), (2, 3, "-PER")}),
    ("NOUN NOUN VERB", {(0, 1, "NOUN"), (1, 2, "NOUN"), (2, 3, "VERB")}),  # without a prefix each stands for itself
    ("O O", set()),
])  # fmt: skip
def test_labels_are_spans(labels: str, expected: set[tuple[int, int, str]]) -> None:
    assert spans(labels.split()) == expected


def test_a_span_counts_where_bounds_and_kind_are_right() -> None:
    truth = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-PER"]]
    guess = [["B-PER", "O", "B-PER"], ["B-LOC", "O", "B-LOC"]]
    assert span_f1(truth, guess) == pytest.approx(2 * 1 / (3 + 4))  # precision 1/4, recall 1/3
    assert span_f1(truth, truth) == 1.0 and span_f1([["O"]], [["O"]]) == 0.0
