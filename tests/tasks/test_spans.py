"""Which words belong together by their labels, and how many such spans were found."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import pytest

from cloze.schemes import Repair, breaks, closes, in_form, may_follow, spans, standard
from cloze.tasks.kinds.token_labelling import label_figures, measured, per_example
from cloze.tasks.measures.spans import counts_by_kind, f1_of, span_counts


@pytest.mark.parametrize(("labels", "expected"), [
    ("O B-PER I-PER O", {(1, 3, "PER")}),
    ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
    ("I-PER I-PER O I-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),  # I- begins where nothing of its kind is open
    ("B-PER I-LOC", {(0, 1, "PER"), (1, 2, "LOC")}),
    ("B-PER I-PER E-PER S-LOC I-LOC", {(0, 3, "PER"), (3, 4, "LOC"), (4, 5, "LOC")}),
    ("B-PER I-PER L-PER U-LOC L-LOC", {(0, 3, "PER"), (3, 4, "LOC"), (4, 5, "LOC")}),  # BILOU
    ("B-PER M-PER M-PER E-PER S-LOC O", {(0, 4, "PER"), (4, 5, "LOC")}),  # BMES
    ("U-PER U-PER O L-PER L-PER", {(0, 1, "PER"), (1, 2, "PER"), (3, 4, "PER"), (4, 5, "PER")}),
    ("L'avion U -PER", {(0, 1, "L'avion"), (1, 2, "U"), (2, 3, "-PER")}),
    ("NOUN NOUN VERB", {(0, 1, "NOUN"), (1, 2, "NOUN"), (2, 3, "VERB")}),  # without a prefix each stands for itself
    ("O O", set()),
])  # fmt: skip
def test_labels_are_spans(labels: str, expected: set[tuple[int, int, str]]) -> None:
    assert spans(labels.split()) == expected


@pytest.mark.parametrize(("labels", "expected"), [
    ("O B I I O B", "O B-_ I-_ I-_ O B-_"),  # seqeval issue 46
    ("B M E S", "B-_ M-_ E-_ S-_"),  # word segmentation
    ("O B_PER I_PER", "O B-PER I-PER"),
    ("PER-B PER-I O", "B-PER I-PER O"),
    ("b-tax-rate i-tax-rate o", "B-tax-rate I-tax-rate O"),
    ("B-COUNT B-COUNT o", "B-COUNT B-COUNT O"),  # flair issue 223
    ("B-PER I-PER O", ""), ("B E S V R", ""), ("B E S O X", ""), ("NOUN VERB", ""), ("S_X B_X", ""), ("O", ""),
    ("B-PER I-PER o O", ""),
])  # fmt: skip
def test_a_scheme_in_other_letters_is_read_where_all_labels_have_it(labels: str, expected: str) -> None:
    names = labels.split()
    assert " ".join(in_form(names, standard(names))) == (expected or labels)


def test_spans_are_counted_in_every_way_to_write_a_scheme() -> None:
    sides = [[["O", "B", "I", "I", "O"], ["B", "I", "O"]], [["O", "O", "B", "I", "O"], ["B", "I", "O"]]]
    truth, guess = sides
    figures = measured(truth, guess)
    assert figures["span_f1"] == 0.5 and figures["accuracy"] == 6 / 8
    forms = standard({"B", "I", "O"})
    assert [text.spans for text in per_example(truth, guess, forms=forms)] == [(1, 1, 0), (1, 1, 1)]
    table = label_figures(truth, guess, repair="begin", closed=False, forms=forms)
    assert [row["label"] for row in table["by_class"]] == ["_"] and [row["label"] for row in table["tags"]] == ["B", "I", "O"]


def test_a_span_counts_where_bounds_and_kind_are_right() -> None:
    truth = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-PER"]]
    guess = [["B-PER", "O", "B-PER"], ["B-LOC", "O", "B-LOC"]]
    assert f1(truth, guess) == pytest.approx(2 * 1 / (3 + 4))  # precision 1/4, recall 1/3
    assert f1(truth, truth) == 1.0 and f1([["O"]], [["O"]]) == 0.0


def f1(truth: list[list[str]], guess: list[list[str]], repair: Repair = "begin") -> float:
    """F1 of the spans of many texts."""
    return f1_of(span_counts(own, said, repair=repair) for own, said in zip(truth, guess, strict=True))


# Every text of up to four words, against regular expressions over one letter a label; capitals are of another kind.
LETTERS = {"b": "B-P", "i": "I-P", "e": "E-P", "s": "S-P", "B": "B-Q", "I": "I-Q", "E": "E-Q", "S": "S-Q", "o": "O"}
PATTERNS = {
    ("begin", False): "s|[bi]i*e?|e",
    ("begin", True): "s|[bi]i*e?|e",
    ("drop", False): "s|bi*e?",
    ("drop", True): "s|bi*e",
}


def texts(letters: str) -> list[str]:
    return ["".join(text) for length in range(5) for text in product(letters, repeat=length)]


@pytest.mark.parametrize(("repair", "closed"), PATTERNS)
def test_every_repair_rule_is_a_regular_expression_over_the_labels(repair: Repair, closed: bool) -> None:
    own = PATTERNS[repair, closed]
    pattern = re.compile("|".join([own, own.upper()]))
    for text in texts("biesBIESo"):
        expected = {(m.start(), m.end(), "P" if m[0].islower() else "Q") for m in pattern.finditer(text)}
        assert spans([LETTERS[letter] for letter in text], repair=repair, closed=closed) == expected, text


@pytest.mark.parametrize("closed", [False, True])
def test_labels_break_their_scheme_where_no_sequence_of_whole_spans_has_them(closed: bool) -> None:
    whole = re.compile("(o|s|bi*e|S|BI*E)*" if closed else "(o|s|bi*e?|S|BI*E?)*")
    for text in texts("biesBIo"):
        labels = [LETTERS[letter] for letter in text]
        assert bool(breaks(labels, closed=closed)) == (whole.fullmatch(text) is None), text
        if not breaks(labels, closed=closed):
            assert spans(labels, repair="drop", closed=closed) == spans(labels)
        follows = [may_follow(a, b, closed=closed) for a, b in zip([None, *labels], [*labels, None], strict=True)]
        assert all(follows) == (not breaks(labels, closed=closed)), text


def test_the_places_of_breaks_are_told() -> None:
    assert breaks(["O", "I-PER", "I-PER", "B-LOC", "E-PER"]) == [1, 4]
    assert breaks(["B-PER", "I-PER", "O", "U-LOC", "B-PER", "L-LOC"], closed=True) == [1, 4, 5]
    assert breaks(["NOUN", "VERB", "I"]) == []
    assert closes(["O", "U-PER"]) and closes(["L-PER"]) and not closes(["B-PER", "I-PER", "O", "NOUN", "S"])


def test_f1_follows_the_repair_rule() -> None:
    truth, guess = [["B-PER", "I-PER", "O"]], [["I-PER", "I-PER", "O"]]
    assert f1(truth, guess) == 1.0 and f1(truth, guess, repair="drop") == 0.0


def report(truth: Any, guess: Any, *, repair: Any) -> list[dict[str, Any]]:
    """Precision, recall, F1 and support of the spans of each kind."""
    kinds, counts = counts_by_kind(truth, guess, repair=repair)
    return counts.rows(kinds)


def test_the_report_of_each_kind_is_scikit_learns_over_all_spans_that_occur() -> None:
    """Each (text, bounds) that is a span on either side is an example whose class is its kind, or nothing."""
    from sklearn.metrics import precision_recall_fscore_support

    chance = random.Random(0)
    labels = ["O", "B-X", "I-X", "B-Y", "I-Y", "B-Z", "NOUN"]
    truth, guess = ([[chance.choice(labels) for _ in range(1 + n % 9)] for n in range(60)] for _ in range(2))
    truth[0], guess[0] = ["B-ONLY", "O"], ["O", "B-FOUND"]  # kinds of one side alone
    truth[1], guess[1] = guess[1][:2], truth[1][:2]
    for repair in ("begin", "drop"):
        sides: list[list[tuple[int, int, int, str]]] = [
            [(n, *span) for n, own in enumerate(side) for span in spans(own, repair=repair)] for side in (truth, guess)
        ]
        kinds = sorted({span[3] for side in sides for span in side})
        for row, kind in zip(report(truth, guess, repair=repair), kinds, strict=True):
            own = [{span[:3] for span in side if span[3] == kind} for side in sides]
            examples = sorted(own[0] | own[1])
            expected = precision_recall_fscore_support(
                [e in own[0] for e in examples], [e in own[1] for e in examples], average="binary", zero_division=0
            )
            assert row["label"] == kind and row["support"] == len(own[0])
            assert [row[name] for name in ("precision", "recall", "f1")] == pytest.approx(expected[:3])
        each = [span_counts(a, b, repair=repair) for a, b in zip(truth, guess, strict=True)]
        assert sum(count.true for count in each) == sum(row["support"] for row in report(truth, guess, repair=repair))


# The rules of conlleval: between which prefixes of one kind a chunk ends, and begins; a change of kind does both. For B, I and O
# they are those of the version of 2004-01-26, for E and S those of its port to Python (spyysalo/conlleval.py): the former has no
# rule for S, nor for B behind E, so that neighbours of one kind are one chunk to it.
ENDS = {"BB", "BS", "BO", "IB", "IS", "IO", *(f"{end}{any_}" for end in "ES" for any_ in "BIESO")}
BEGINS = {"EE", "EI", "SE", "SI", "OE", "OI", *(f"{any_}{begin}" for any_ in "BIESO" for begin in "BS")}


def conlleval(truth: list[list[str]], guess: list[list[str]]) -> tuple[int, int, int]:
    """The chunks of the file, those that were found, and the right ones, by a walk over both columns; between texts stands O."""
    correct = [label for text in truth for label in (*text, "O")]
    guessed = [label for text in guess for label in (*text, "O")]
    counts, right, together = [0, 0], 0, False
    before = [("O", ""), ("O", "")]
    for labels in [*zip(correct, guessed, strict=True), ("O", "O")]:
        now = [(label.partition("-")[0], label.partition("-")[2]) for label in labels]
        changes = [a[1] != b[1] for a, b in zip(before, now, strict=True)]
        steps = [(a[0] + b[0], a[0], b[0]) for a, b in zip(before, now, strict=True)]
        ends = [step in ENDS or (first != "O" and new) for (step, first, _), new in zip(steps, changes, strict=True)]
        begins = [step in BEGINS or (second != "O" and new) for (step, _, second), new in zip(steps, changes, strict=True)]
        if together:
            if all(ends) and before[0][1] == before[1][1]:
                right, together = right + 1, False
            elif ends[0] != ends[1] or now[0][1] != now[1][1]:
                together = False
        if all(begins) and now[0][1] == now[1][1]:
            together = True
        counts = [count + begin for count, begin in zip(counts, begins, strict=True)]
        before = now
    return counts[0], counts[1], right


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_spans_are_counted_as_conlleval_counts_them(prefixes: str) -> None:
    labels = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in "PQ")]
    short = [list(text) for length in (1, 2) for text in product(labels, repeat=length)]
    for own in short:
        for said in short:
            if len(own) == len(said):
                assert tuple(span_counts(own, said)) == conlleval([own], [said]), (own, said)
    chance = random.Random(0)
    for trial in range(400):
        truth = [[chance.choice(labels) for _ in range(chance.randint(1, 9))] for _ in range(4)]
        guess = [[label if chance.random() < 0.7 * (trial % 2) else chance.choice(labels) for label in own] for own in truth]
        expected = conlleval(truth, guess)
        found = [span_counts(*both) for both in zip(truth, guess, strict=True)]
        assert tuple(map(sum, zip(*found, strict=True))) == expected
        precision, recall = expected[2] / max(expected[1], 1), expected[2] / max(expected[0], 1)
        harmonic = 2 * precision * recall / (precision + recall) if expected[2] else 0.0
        assert f1_of(found) == pytest.approx(harmonic)


def test_whole_spans_count_alike_in_every_scheme() -> None:
    chance = random.Random(1)
    prefixes = {"BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES"}
    for _ in range(200):
        sides: dict[str, list[list[str]]] = {name: [] for name in ("BIO", *prefixes)}
        for _side in range(2):
            pieces = [(chance.choice(["O", "P", "Q"]), chance.randint(1, 4)) for _ in range(8)]
            flat = ([kind for kind, size in pieces for _ in range(size)] * 2)[:12]
            starts = [place == 0 or chance.random() < 0.3 or flat[place - 1] != kind for place, kind in enumerate(flat)]
            sides["BIO"].append([k if k == "O" else f"{'B' if new else 'I'}-{k}" for k, new in zip(flat, starts, strict=True)])
            last = [*starts[1:], True]
            for name, (begin, inside, end, single) in prefixes.items():
                marks = [(single if stop else begin) if new else (end if stop else inside)
                         for new, stop in zip(starts, last, strict=True)]  # fmt: skip
                sides[name].append([k if k == "O" else f"{mark}-{k}" for k, mark in zip(flat, marks, strict=True)])
        expected = conlleval(*([own] for own in sides["BIO"]))
        for name in prefixes:
            assert tuple(span_counts(*sides[name], closed=True)) == expected
            assert tuple(span_counts(*sides[name], repair="drop", closed=True)) == expected
            assert not any(breaks(own, closed=True) for own in sides[name])
