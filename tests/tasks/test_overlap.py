"""Figures of written texts against cases worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import TaskError
from cloze.tasks.measures.overlap import exact, f1, longest_common, overlap, rouge_l, rouge_n, words

#: The example of Lin (2004), §3.1: three candidates for "police killed the gunman".
GUNMAN = ["police", "killed", "the", "gunman"]


@pytest.mark.parametrize(
    ("candidate", "unigrams", "bigrams", "subsequence"),
    [
        ("police kill the gunman", 3 / 4, 1 / 3, 3 / 4),
        ("the gunman kill police", 3 / 4, 1 / 3, 2 / 4),
        ("the gunman police killed", 1.0, 2 / 3, 2 / 4),
    ],
)
def test_rouge_of_the_published_example(candidate: str, unigrams: float, bigrams: float, subsequence: float) -> None:
    written = candidate.split()
    assert rouge_n(written, GUNMAN, 1) == pytest.approx(unigrams)
    assert rouge_n(written, GUNMAN, 2) == pytest.approx(bigrams)
    assert rouge_l(written, GUNMAN) == pytest.approx(subsequence)


def test_rouge_counts_a_repeated_word_as_often_as_the_rarer_text_has_it() -> None:
    assert rouge_n(["the", "the", "the"], ["the", "cat"], 1) == pytest.approx(2 * 1 / (3 + 2))
    assert rouge_n(["the", "cat", "sat"], ["the", "cat"], 2) == pytest.approx(2 * 1 / (2 + 1))
    assert rouge_n(["a"], ["a"], 2) == 0.0 and rouge_l([], ["a"]) == 0.0 and rouge_n([], [], 1) == 0.0


def test_f1_leaves_out_articles_case_and_punctuation() -> None:
    assert f1("The Cat, sat!", "a cat sat") == 1.0
    assert f1("the big cat", "cat sat") == pytest.approx(2 * 1 / (2 + 2))
    assert f1("don't", "dont") == 1.0 and f1("the U.S. army", "US army") == 1.0 and f1("3.5", "35") == 1.0
    assert f1("3.5", "3 5") == 0.0 and f1("do n't", "don't") == 0.0 and f1("well-known man", "well known man") == 2 / 5
    assert f1("It's Anna's, isn't it?", "isnt its annas it") == 1.0
    assert f1("“cat”", "cat") == 0.0  # the published script deletes the punctuation of ASCII alone
    assert f1("the", "an") == 1.0 and f1("", "cat") == 0.0 and f1("dog", "cat") == 0.0


def test_ideographs_are_words_of_their_own() -> None:
    assert words("我爱NLP_2、カナ") == ["我", "爱", "nlp", "2", "カ", "ナ"]
    assert f1("我，爱你。", "我爱「你」！") == 1.0
    assert f1("我爱你", "我恨你") == pytest.approx(2 / 3)


def test_exact_match_minds_case_and_not_space() -> None:
    assert exact(" the  cat ", "the cat") == 1.0 and exact("The cat", "the cat") == 0.0 and exact("positive!", "positive") == 0.0


def test_the_mean_is_over_pairs() -> None:
    found = overlap(["the cat", "no"], [["the cat"], ["yes"]])
    assert found == {"exact_match": 0.5, "f1": 0.5, "rouge1": 0.5, "rouge2": 0.5, "rougeL": 0.5}
    with pytest.raises(TaskError, match="no examples with targets"):
        overlap([], [])


def test_every_figure_is_that_of_the_reference_which_is_best_for_it() -> None:
    found = overlap(["e b c d"], [["e b", "d c b e z"]])
    assert found == pytest.approx({"exact_match": 0.0, "f1": 8 / 9, "rouge1": 8 / 9, "rouge2": 0.5, "rougeL": 2 / 3})
    assert overlap(["a"], [["b", "a"]])["exact_match"] == 1.0


TEXT = st.lists(st.sampled_from("abc"), max_size=12)


@given(TEXT, TEXT)
def test_the_longest_common_subsequence_is_that_of_the_table(one: list[str], other: list[str]) -> None:
    row = [0] * (len(one) + 1)
    for letter in other:
        before = row[:]
        for i, mine in enumerate(one):
            row[i + 1] = before[i] + 1 if mine == letter else max(before[i + 1], row[i])
    assert longest_common(one, other) == row[-1] == longest_common(other, one)
