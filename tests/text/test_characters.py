"""Words of running text in every script of Unicode."""

from __future__ import annotations

import unicodedata
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.tasks.measures.answers import cmrc_pieces
from cloze.tasks.measures.overlap import f1, words
from cloze.text import segment
from cloze.text.annotation import annotators
from cloze.text.matching import RUNS, WordList
from cloze.text.running import word_spans
from cloze.text.vocabularies.vocabulary import Fit

#: Cuts at every character.
EVERYWHERE: Any = SimpleNamespace(encode_spelled=lambda texts: SimpleNamespace(begin=range(len(texts[0]))))
#: Cuts nowhere.
NOWHERE: Any = SimpleNamespace(encode_spelled=lambda texts: SimpleNamespace(begin=[0]))
ASSIGNED = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
LETTERS = [c for c in ASSIGNED if c.isalnum()]
MARKS = [c for c in ASSIGNED if unicodedata.category(c)[0] == "M" and c != "\u20e3"]  # a keycap ends its word
INVISIBLE = {c for c in ASSIGNED if unicodedata.category(c) == "Cf"}


def cut(text: str, tokenizer: Any = NOWHERE) -> list[str]:
    return [text[begin:end] for begin, end in word_spans(text, tokenizer)]


WHOLE = [
    "हिन्दी में दिल्ली बड़ी है ।", "اللُّغَةُ", "Zu\u0308rich e\u0301te\u0301", "Lon\u00addon",
    "👩‍👩‍👧 🇩🇪 👍🏽 1️⃣ #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️", "নদী", "தமிழ்", "తెలుగు",
    "می‌خواهم", "ի՞նչ", "葛󠄀", "N\u0303anduti",
]  # fmt: skip


@pytest.mark.parametrize("text", WHOLE)
def test_words_keep_their_marks(text: str) -> None:
    assert cut(text) == text.split() == RUNS.findall(text)


def test_flags_and_emoji_that_touch_are_several_words() -> None:
    assert cut("👍🏽👍🇩🇪🇫🇷1️⃣2️⃣👩‍🚀!") == ["👍🏽", "👍", "🇩🇪", "🇫🇷", "1️⃣", "2️⃣", "👩‍🚀", "!"]


def test_a_word_of_every_letter_and_every_mark_of_unicode_is_whole() -> None:
    blocks: dict[int, tuple[list[str], list[str]]] = {}
    for group, characters in enumerate((LETTERS, MARKS)):
        for character in characters:
            blocks.setdefault(ord(character) >> 8, ([], []))[group].append(character)
    for letters, marks in blocks.values():
        word = "".join(letter + marks[number % len(marks)] if marks else letter for number, letter in enumerate(letters or ["x"]))
        word += "".join(marks)
        assert RUNS.findall(f"({word})") == ["(", word, ")"]
        assert "".join(cut(word, EVERYWHERE)) == word
        assert not any(piece[0] in marks for piece in cut(word, EVERYWHERE))


def test_composed_and_decomposed_text_have_the_same_number_of_words() -> None:
    for character in ASSIGNED:
        if (decomposed := unicodedata.normalize("NFD", character)) != character:
            composed = unicodedata.normalize("NFC", character)
            for frame in ("{0} a{0}b {0}{0}", "({0})"):
                counts = [len(RUNS.findall(frame.format(form))) for form in (character, composed, decomposed)]
                assert counts[0] == counts[1] == counts[2], ascii(character)


@given(st.text())
def test_every_character_that_is_seen_is_in_one_word(text: str) -> None:
    for spans in ([match.span() for match in RUNS.finditer(text)], word_spans(text, EVERYWHERE)):
        covered = [place for begin, end in spans for place in range(begin, end)]
        assert covered == sorted(set(covered))
        left = {text[place] for place in set(range(len(text))) - set(covered)}
        assert all(character.isspace() or character in INVISIBLE for character in left)


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_english_is_cut_at_every_symbol(text: str) -> None:
    runs: list[str] = []
    for before, character in zip([" ", *text], text, strict=False):
        if character.isalnum() and before.isalnum():
            runs[-1] += character
        elif not character.isspace():
            runs.append(character)
    assert RUNS.findall(text) == runs


def test_thai_is_cut_by_the_tokenizer_but_never_before_a_mark() -> None:
    assert cut("น้ำดื่ม", EVERYWHERE) == ["น้", "ำ", "ดื่", "ม"]
    assert cut("ကျောင်း", EVERYWHERE)[0] == "ကျော" and cut("ｶﾞ", EVERYWHERE) == ["ｶ", "ﾞ"]


@pytest.mark.parametrize(("text", "right"), [
    ("U.S. e-mail, e.g. 1,000.5!", "U.S.|e-mail|,|e.g.|1,000.5|!"),
    ("wait... what?! --", "wait|...|what|?|!|--"),
    ("L'homme qu'il dell'arte don't o'clock", "L'|homme|qu'|il|dell'|arte|don't|o'clock"),
    ('EU:n ש"ח http://x', 'EU:n|ש"ח|http|:|/|/|x'),
    ("www.example.com. A-中", "www.example.com|.|A|-|中"),
])  # fmt: skip
def test_words_are_those_of_treebanks(text: str, right: str) -> None:
    assert "|".join(cut(text)) == right


def test_figures_of_written_texts_compare_whole_words() -> None:
    assert words("हिन्दी में") == ["हिन्दी", "में"] != words("हिन्दू म") and words("cafe\u0301") != words("cafe")
    assert words("น้ำ က်") == ["น้", "ำ", "က်"] and f1("का", "क") == f1("น้", "น") == 0.0
    assert cmrc_pieces("में 我") == ["में", "我"]


def test_annotators_and_word_lists_keep_words_whole() -> None:
    assert annotators.Repeats().annotate("में है") == [(0, 3, 0), (4, 6, 0)]
    assert annotators.Case().annotate("É\u0301t é") == [(0, 3, 1), (4, 5, 0)]
    assert WordList(["हिन्द", "में", "म"]).spans("हिन्दी में म") == [(7, 10), (11, 12)]
    assert segment.Dictionary(built_in=True).segment("中国\ufe00में") == [0, 1, 3]


def test_words_with_marks_can_be_added_to_a_vocabulary() -> None:
    fit = Fit()
    fit.cut.update({"हिन्दी": 3, "a/b": 3})
    fit.pieces.update({"हिन्दी": 4, "a/b": 3})
    assert [candidate.word for candidate in fit.candidates()] == ["हिन्दी"]
