"""Similarity and analogies: correlations against scipy, coverage stated, every wrong column told; the verbs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.cli.main import main
from cloze.errors import TaskError
from cloze.interop.vectors import Vectors
from cloze.interop.vectors.subwords import Subwords
from cloze.tasks.intrinsic.analogies import analogies, read_questions
from cloze.tasks.intrinsic.similarity import read_pairs, similarity
from cloze.tasks.measures.agreement import ranks, spearman

WORDS = ["man", "king", "woman", "queen", "boy", "girl", "Paris"]
ROWS = [[1, 0, 0.1], [1, 1, 0.1], [-1, 0, 0.1], [-1, 1, 0.1], [1, 0, 0.6], [-1, 0, 0.6], [0.1, 0.2, 1]]
QUESTIONS = """: family
man king woman queen
man boy woman girl
man prince woman princess
: gram1
boy man girl queen
"""
Files = Callable[[str, str], Path]


@pytest.fixture
def vectors() -> Vectors:
    return Vectors(WORDS, np.float32(ROWS), "v")


@pytest.fixture
def file(tmp_path: Path) -> Files:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def model(file: Files) -> Path:
    return file("v.txt", "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, ROWS, strict=True)))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
@settings(deadline=None, max_examples=60)
def test_spearman_is_the_correlation_of_ranks_with_ties_averaged(drawn: list[tuple[int, int]]) -> None:
    one, two = np.array(drawn).T
    for values in (one, two):
        counted = [(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values]
        assert ranks(values).tolist() == counted
    found = spearman(one, two)
    if len(set(one)) == 1 or len(set(two)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(np.corrcoef(ranks(one), ranks(two))[0, 1], abs=1e-12)


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 30, 20, 40]) == pytest.approx(0.8)
    assert spearman([1, 2, 2, 4], [1, 2, 3, 4]) == pytest.approx(0.948683, abs=1e-6)
    assert spearman([], []) is None and spearman([1], [2]) is None


def test_unknown_pairs_are_counted_and_named(vectors: Vectors, file: Files) -> None:
    pairs = read_pairs(file("p.txt", "# words\nman boy 9\r\nman\tking\t5\n\nman queen 1.5\nking tsar 7\nparis man 4\n"))
    found = similarity(vectors, pairs)
    assert (found.spearman, found.pairs, found.found, found.missing) == (1.0, 5, 3, ("tsar", "paris"))
    assert found.coverage == pytest.approx(0.6)
    assert found.remarks == ("too few pairs for a correlation: 3 of at least 10",)
    zero = similarity(vectors, pairs, unknown="zero")
    assert zero.spearman == pytest.approx(spearman([9, 5, 1.5, 7, 4], [0.9, 0.7, -0.4, 0, 0]))
    with pytest.raises(TaskError, match="unknown way with unknown words 'drop'"):
        similarity(vectors, pairs, unknown="drop")  # type: ignore[arg-type]


def test_lower_case_is_an_option_and_said(vectors: Vectors, file: Files) -> None:
    pairs = read_pairs(file("p.txt", "Man boy 9\nman KING 5\nman queen 1\n"))
    found = similarity(vectors, pairs)
    assert found.found == 1 and "2 of the unknown words are known in lower case, such as 'Man'" in found.remarks[0]
    assert similarity(vectors, pairs, lower=True).found == 3


def test_lower_case_is_advised_for_words_that_it_adds_to_a_restricted_search_only(vectors: Vectors, file: Files) -> None:
    questions = read_questions(file("q.txt", "MAN KING WOMAN QUEEN\nman king woman queen\n"))
    (remark,) = analogies(vectors, questions, restrict=1).remarks
    assert remark == "1 of the unknown words are known in lower case, such as 'MAN': --lower finds them."
    assert analogies(replace(vectors, lower=True), questions, restrict=1).remarks == ()  # its look-ups lower-case already


def test_words_made_of_n_grams_are_found_and_counted(file: Files) -> None:
    part = Subwords(np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32), 3, 4)
    vectors = Vectors(["where", "there"], np.ones((2, 4), np.float32), "v", part)
    found = similarity(vectors, read_pairs(file("p.txt", "where there 3\nwhere wherever 2\nwhere x 1\n")))
    assert (found.found, found.composed) == (3, 2)  # `<x>` is an n-gram


def test_analogies_are_counted_by_section(vectors: Vectors, file: Files) -> None:
    questions = read_questions(file("q.txt", QUESTIONS))
    found = analogies(vectors, questions)
    family = found.sections["family"]
    assert (family.questions, family.known, family.right, family.accuracy) == (3, 2, 2, 1.0)
    assert (found.groups["semantic"], found.groups["syntactic"]) == (family, found.sections["gram1"])
    assert (found.total.questions, found.total.known, found.total.right) == (4, 3, 2)
    assert found.missing == ("prince", "princess") and found.words == 7
    assert analogies(vectors, questions, unknown="zero").total.accuracy == 0.5
    assert [analogies(vectors, questions, restrict=most).total.known for most in (3, 4, 5, 6)] == [0, 1, 1, 3]
    assert analogies(vectors, questions, restrict=2).total.accuracy is None


PAIR_FAULTS = {
    "man king\n": ":1: 2 columns, expected 3",
    "man king 3\nman king queen 3\n": ":2: 4 columns.*Give it by --analogies",
    ": family\nman king woman queen\n": ":1: 2 columns.*Give it by --analogies",
    "word1 word2 score\nman king 3\n": ":1: the score 'score' is not a finite number. Take the header line out",
    "man king nan\n": "the score 'nan' is not a finite",
    "\n": "no pairs",
}
QUESTION_FAULTS = {
    ": a\nman king woman\n": ":2: 3 columns, expected 4 words.*Give it by --similarity",
    "man king woman queen boy\n": ":1: 5 columns",
    ": a\n": "no questions",
}


@pytest.mark.parametrize("text", PAIR_FAULTS)
def test_wrong_pairs_are_told(text: str, file: Files) -> None:
    with pytest.raises(TaskError, match=PAIR_FAULTS[text]):
        read_pairs(file("p.txt", text))


@pytest.mark.parametrize("text", QUESTION_FAULTS)
def test_wrong_questions_are_told(text: str, file: Files) -> None:
    with pytest.raises(TaskError, match=QUESTION_FAULTS[text]):
        read_questions(file("q.txt", text))


def test_the_published_sets_are_read(shared_data: Path) -> None:
    pairs = {path.name: len(read_pairs(path)) for path in (shared_data / "wordsim_en").glob("EN-*.txt")}
    assert len(pairs) == 12 and pairs["EN-MC-30.txt"] == 30 and pairs["EN-MEN-TR-3k.txt"] == 3000
    assert pairs["EN-RW-STANFORD.txt"] == 2034 and pairs["EN-SIMLEX-999.txt"] == 999
    english = read_questions(shared_data / "analogy_en_google" / "questions-words.txt.xz")
    assert len(english) == 19544 and len({question.section for question in english}) == 14
    chinese = shared_data / "wordsim_zh_cwe"
    assert len(read_pairs(chinese / "240.txt")) == 240 and len(read_questions(chinese / "analogy.txt")) == 953


def test_the_verbs_print_and_give_json(model: Path, file: Files, capsys: pytest.CaptureFixture[str]) -> None:
    def cloze(*arguments: object) -> str:
        assert main(list(map(str, arguments))) == 0
        return capsys.readouterr().out

    assert cloze("neighbours", model, "man", "--count", 1) == "man\n  boy  0.9044\n"
    (told,) = json.loads(cloze("neighbours", model, "man", "--json"))
    assert told["word"] == "man" and len(told["neighbours"]) == 6
    assert cloze("analogy", model, "man", "king", "woman", "--count", 1).startswith("queen  ")
    answers = json.loads(cloze("analogy", model, "man", "king", "woman", "--method", "multiply", "--json"))
    assert answers["answers"][0]["word"] == "queen"
    pairs, questions = file("p.txt", "man boy 9\nman king 5\nman tsar 2\n"), file("q.txt", QUESTIONS)
    shown = cloze("evaluate", model, "--similarity", pairs, "--analogies", questions)
    assert "p.txt              -  2 of 3" in shown and "unknown: tsar" in shown
    assert "  too few pairs for a correlation: 2 of at least 10\n" in shown
    enough = file("enough.txt", "man boy 9\nman king 5\n" * 5)
    assert "enough.txt    1.0000  10 of 10\n" in cloze("evaluate", model, "--similarity", enough)
    assert "3CosAdd among all 7 words" in shown and "2 of 3 of 4" in shown and "unknown: prince, princess" in shown
    both = json.loads(cloze("evaluate", model, "--similarity", pairs, pairs, "--json"))
    assert both["similarity"][str(pairs)]["found"] == 2 and both["analogies"] == {}
    exported = pairs.with_name("v.bin")
    assert "7 vectors of width 3" in cloze("export", model, exported, "--to", "word2vec-binary")
    assert cloze("neighbours", exported, "man", "--count", 1) == "man\n  boy  0.9044\n"


def test_the_verbs_tell_what_is_wrong(model: Path, file: Files, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = file("p.txt", "man boy 9\n")
    for arguments, expected in (
        (["neighbours", model, "kign"], "'kign' is not among the 7 words"),
        (["neighbours", model.with_name("nowhere"), "king"], "no such file or folder"),
        (["analogy", model, "man", "king", "woman", "--method", "x"], "unknown method 'x'"),
        (["evaluate", model], "no file to evaluate on"),
        (["evaluate", model, "--similarity", pairs, "--analogies", pairs, pairs], "is this a file of pairs or of analogies?"),
        (["evaluate", model, "--similarity", model.parent / "none"], "no such file"),
        (["evaluate", model, "--analogies", pairs], "3 columns, expected 4 words"),
        (["export", model, model.parent / "no" / "x"], "its folder does not exist"),
        (["export", model, model.parent / "x", "--to", "x"], "unknown format 'x'"),
    ):
        assert main(list(map(str, arguments))) == 2
        assert expected in capsys.readouterr().err
