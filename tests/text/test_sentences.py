"""Sentence splitting by rule."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import CorpusError
from cloze.text import sentences, split_sentences

ENGLISH = [
    ["Mr. Smith went home.", "He slept."],
    ["J. K. Rowling wrote it.", "Dr. A. B. Cole read it."],
    ["It cost $3.50 at 3.5 p.m. on Jan. 5, 1990.", "See Fig. 3 and No. 5 (pp. 12 ff)."],
    ['"Stop!" he said.', '"Why?"', "She left."],
    ["The U.S. Army came from the U.S.", "The end was near."],
    ["Acme Inc. grew.", "It bought Smith & Co. and others, e.g. Jones et al. (1990)."],
    ["What?!", "No...", "Really?", "Yes... yes."],
    ["1. The first point.", "2. The second."],
    ["World War I.", "The peace."],
    ["He paused… and went on.", "(It rained.)", "[Then it stopped.]"],
    ["visit example.com today.", "Version 2.0.1 is out."],
    ["She said: “It rains.”", "‘Yes.’"],
]
CHINESE = [
    ["他说：“你好！”", "然后走了。"],
    ["天气很好；", "我们去吧……", "好的。", "真的吗？！", "是(的)。"],
    ["「走吧。」", "她说。"],
    ["价格是3.5元。", "很便宜！"],
    ["你好吗?", "我很好。"],
    ["他喊“停！”，然后跑了。"],
]


@pytest.mark.parametrize("sentences", ENGLISH)
def test_english_sentences(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("  ".join(sentences), "english") == sentences


@pytest.mark.parametrize("sentences", CHINESE)
def test_chinese_sentences(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences("".join(sentences), "chinese") == sentences


def test_both_languages_in_one_text() -> None:
    assert split_sentences("He left. 他走了。She stayed.") == ["He left.", "他走了。", "She stayed."]


def test_a_blank_line_ends_a_sentence_and_a_line_end_does_not() -> None:
    assert split_sentences("a title\n\nIt begins\nhere.") == ["a title", "It begins\nhere."]


def test_empty_and_blank_texts_have_no_sentences() -> None:
    assert split_sentences("") == split_sentences(" \n\t ") == []


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(CorpusError, match="Did you mean 'english'"):
        split_sentences("a", "englsh")  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="aB1 .!?…。！？；”\"')\n\t，猫“(", max_size=60))
def test_nothing_but_white_space_is_lost(text: str) -> None:
    for language in ("auto", "english", "chinese"):
        found = split_sentences(text, language)
        assert "".join("".join(found).split()) == "".join(text.split())
        assert all(sentence and sentence == sentence.strip() for sentence in found)


# ---- the quick way for lines of English marks, against the rules alone -------------------------------------------------

WORDS = [
    *sorted(sentences._DOUBTFUL), "Mr", "MR", "Trans", "sensed", "Inc", "prox", "U.S", "e.g", "J", "mat", "Cat", "é", "Élan",
    "naïf", "Moréal", "12", "2018", "in 2018", "a, 1999", "42%", "3rd", "x-mr", "it's", "", "中", "\u212a", "née",
]
MARKS = [".", ".", ".", "!", "?", "...", "?!", ".)", '."', ".’", "!”", ".]", ",", ":", "…", "。", "！", ""]
GAPS = [
    " ", " ", " ", "  ", "\t", "\n", "\n\n", "\x0c", "\x1f", "\x85", "\u00a0", "\u3000", "",
    ' "', " “", " (", " —", " -", "(", "“", "「",
]
LINES = st.lists(st.tuples(*map(st.sampled_from, (WORDS, MARKS, GAPS))), max_size=8).map(
    lambda parts: "".join(chain.from_iterable(parts))
)


def by_rules_alone(text: str, language: str) -> list[str]:
    """Every mark looked at one by one."""
    found, begin = [], 0
    for match in sentences._PATTERNS["english" if language == "auto" and text.isascii() else language].finditer(text):
        mark, end = match.start(), match.end()
        spaced = text[mark] in ".!?…" and text[end - 1].isspace()
        if not spaced or sentences._ends_english(text, begin, mark, end):
            found.append(text[begin:end].strip())
            begin = end
    return [sentence for sentence in [*found, text[begin:].strip()] if sentence]


@settings(max_examples=600, deadline=None)
@given(text=st.one_of(LINES, LINES.map(str.lower), LINES.map(lambda line: line.encode("ascii", "ignore").decode())))
def test_the_quick_way_finds_the_sentences_of_the_rules(text: str) -> None:
    for language in ("auto", "english", "chinese"):
        assert split_sentences(text, language) == by_rules_alone(text, language)


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="aA.1 !?)\"'“é\nmr…中", max_size=24))
def test_the_quick_way_finds_them_in_any_characters(text: str) -> None:
    for language in ("auto", "english"):
        assert split_sentences(text, language) == by_rules_alone(text, language)


def test_no_listed_word_is_taken_for_a_sure_end() -> None:
    for word in sentences._DOUBTFUL:
        for form in (word, word.capitalize(), word.upper()):
            for text in (f"A {form}. The end.", f"{form}. The end.", f"a-{form}. 5 ends.", f"the,{form}.) An end."):
                assert split_sentences(text) == by_rules_alone(text, "auto")
