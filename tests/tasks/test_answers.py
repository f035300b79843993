"""Scores of answers against the definitions of the published scripts, written down a second time as plain loops."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.errors import TaskError
from cloze.tasks.measures.answers import (
    answer_scores,
    best,
    cmrc_exact,
    cmrc_f1,
    cmrc_pieces,
    longest_run,
    squad_exact,
    squad_f1,
    squad_words,
)

WORDS = ["the", "a", "an", "The", "don't", "U.S.", "3.5", "well-known", "cat", "cats", ",", " ", "…", "“the”", "atheist"]
ENGLISH = st.lists(st.sampled_from(WORDS)).map(" ".join)
CHINESE = st.text(alphabet="我爱北京，。《》ab1-_ ·", max_size=9)


def plain_words(text: str) -> list[str]:
    """SQuAD's rules, character by character."""
    lowered = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    words, word = [], ""
    for letter in lowered + " ":
        if letter.isspace():
            words.append(word)
            word = ""
        else:
            word += letter
    kept = []
    for word in words:  # an article is one between signs that are no letters, too: “the”
        pieces, piece = [], ""
        for letter in word + "\0":
            if letter.isalnum() or letter == "_":
                piece += letter
            else:
                pieces += [" " if piece in ("a", "an", "the") else piece, letter.strip("\0")]
                piece = ""
        kept += "".join(pieces).split()
    return kept


def plain_f1(ours: list[str], theirs: list[str], common: int) -> float:
    if common == 0:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def plain_common(ours: list[str], theirs: list[str]) -> int:
    left, found = list(theirs), 0
    for word in ours:
        if word in left:
            left.remove(word)
            found += 1
    return found


@given(ENGLISH, ENGLISH)
def test_scores_of_english_answers_are_those_of_the_definition(written: str, wanted: str) -> None:
    ours, theirs = plain_words(written), plain_words(wanted)
    assert squad_words(written) == ours
    assert squad_exact(written, wanted) == float(" ".join(ours) == " ".join(theirs))
    expected = float(ours == theirs) if not ours or not theirs else plain_f1(ours, theirs, plain_common(ours, theirs))
    assert squad_f1(written, wanted) == pytest.approx(expected)


def test_deleting_punctuation_joins_what_it_stood_between() -> None:
    assert squad_words("Don't: the U.S., 3.5 well-known _x_!") == ["dont", "us", "35", "wellknown", "x"]
    assert squad_exact("the cat", "cat") == 1.0 and squad_exact("theatre", "atre") == 0.0
    assert squad_f1("cat cat", "cat") == pytest.approx(2 / 3) and squad_f1("the", "") == 1.0 and squad_f1("", "cat") == 0.0


@given(CHINESE, CHINESE)
def test_scores_of_chinese_answers_are_those_of_the_definition(written: str, wanted: str) -> None:
    marks = ["-", ":", "_", "*", "^", "/", "\\", "~", "`", "+", "=", "，", "。", "：", "？", "！", "“", "”", "；", "’"]
    marks += ["《", "》", "·"]
    bare = ["".join(letter for letter in text.lower().strip() if letter not in marks) for text in (written, wanted)]
    assert cmrc_exact(written, wanted) == float(bare[0] == bare[1])
    pieces = [[p for letter in text for p in ([f" {letter} "] if "\u4e00" <= letter <= "\u9fa5" else [letter])] for text in bare]
    ours, theirs = ("".join(part).split() for part in pieces)
    assert cmrc_pieces(written) == ours
    runs = [ours[i:j] for i in range(len(ours)) for j in range(i + 1, len(ours) + 1)]
    most = max([len(run) for run in runs if any(theirs[k : k + len(run)] == run for k in range(len(theirs)))], default=0)
    assert longest_run(ours, theirs) == most == longest_run(theirs, ours)
    assert cmrc_f1(written, wanted) == pytest.approx(plain_f1(ours, theirs, most))


def test_chinese_f1_is_of_the_longest_run_and_not_of_what_is_common() -> None:
    assert cmrc_f1("北京我爱", "我爱北京") == pytest.approx(0.5)  # four pieces are common, two in a row
    assert cmrc_f1("《红楼梦》，1791年。", "红楼梦 1791年") == 1.0
    assert cmrc_exact("《红楼梦》", "红楼梦") == 1.0 and cmrc_exact("红 楼梦", "红楼梦") == 0.0
    assert cmrc_f1("，。", "我") == 0.0


def test_the_answer_that_is_met_best_counts_and_no_answer_is_met_by_nothing() -> None:
    assert best(squad_f1, "big cat", ["dog", "cat", "a big cat"]) == 1.0
    assert answer_scores(["the!", "cat", " "], [[], [], []]) == {"exact_match": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}
    assert answer_scores(["，", "我"], [[], []], scoring="cmrc") == {"exact_match": 0.5, "f1": 0.5}
    found = answer_scores(["the cat", "", "a dog", "dogs"], [["cat", "dog"], [], [], ["dog", "the dogs bark"]])
    assert found == {
        "exact_match": 0.5, "f1": pytest.approx((1 + 1 + 0 + 2 / 3) / 4), "f1_answered": pytest.approx((1 + 2 / 3) / 2),
        "f1_unanswerable": 0.5,
    }
    assert answer_scores(["我爱"], [["我爱你"]], scoring="cmrc") == {"exact_match": 0.0, "f1": pytest.approx(0.8)}
    assert answer_scores([""], [["the"]])["exact_match"] == 1.0  # an answer without a word is none, as in the script
    with pytest.raises(TaskError, match="no questions with answers to measure on."):
        answer_scores([], [])


def test_order_of_the_questions_does_not_matter() -> None:
    draw = random.Random(3)
    written = [" ".join(draw.choices(["the", "cat", "sat", "U.S."], k=3)) for _ in range(20)]
    wanted = [[" ".join(draw.choices(["a", "cat", "sat", "us"], k=2)) for _ in range(2)] for _ in range(20)]
    order = draw.sample(range(20), 20)
    again = answer_scores([written[i] for i in order], [wanted[i] for i in order])
    assert answer_scores(written, wanted) == {name: pytest.approx(value) for name, value in again.items()}
