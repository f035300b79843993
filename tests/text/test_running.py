"""Words of running text, and words as a text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloze.text.running import IdeographsOfWords, as_text, remark_on_units, word_spans

#: Cuts every two characters.
IN_TWOS: Any = SimpleNamespace(encode_spelled=lambda texts: SimpleNamespace(begin=np.arange(0, len(texts[0]), 2)))


@pytest.mark.parametrize(("text", "words"), [
    ("Rain, in New York.", "Rain|,|in|New|York|."),
    ("  don't pay 3.5 % (U.S. e-mail)!? ", "don't|pay|3.5|%|(|U.S.|e-mail|)|!|?"),
    ("我爱北京天安门。", "我|爱|北|京|天|安|门|。"),
    ("在iPhone上用1998年的", "在|iPhone|上|用|1998|年|的"),
    ("naïve_café\tрека", "naïve|_|café|река"),
    ("𠀀𠀁 ok", "𠀀|𠀁|ok"),
    ("我 爱 北京 。", "我|爱|北京|。"),
    ("他 在 iPhone手机 上 看，好的", "他|在|iPhone手机|上|看|，|好的"),
    ("今天天气很好 出去玩", "今|天|天|气|很|好|出|去|玩"),
    ("", ""),
])  # fmt: skip
def test_words_are_cut_at_spaces_marks_and_ideographs(text: str, words: str) -> None:
    found = word_spans(text, IN_TWOS)
    assert "|".join(text[begin:end] for begin, end in found) == words
    assert all(a < b for a, b in found) and all(b <= c for (_, b), (c, _) in zip(found, found[1:], strict=False))


def test_scripts_without_spaces_are_cut_by_the_tokenizer() -> None:
    assert word_spans("ひらがなる cat 東ひ", IN_TWOS) == [(0, 2), (2, 4), (4, 5), (6, 9), (10, 11), (11, 12)]


def test_words_of_chinese_are_a_text_without_spaces() -> None:
    text, places = as_text(["我", "爱", "New", "York", "的", "雨"])
    assert text == "我爱 New York 的雨"
    assert [text[a:b] for a, b in places] == ["我", "爱", "New", "York", "的", "雨"]


def test_texts_that_are_not_segmented_are_told_where_training_had_words() -> None:
    texts = ["我爱北京", "我 爱 北京 。", None, "cat"]
    assert remark_on_units(texts, 1.6) == (
        "each Chinese character of 1 of 4 texts is taken for a word, and words of training have 1.6: put spaces between words"
    )
    assert remark_on_units(texts[1:], 1.6) is None
    for words, mean in ((["我", "爱", "北", "京", "cat"], 1.0), (["我", "爱", "北京", "。"], 1.33), (["cat"], None)):
        counted = IdeographsOfWords()
        counted.add(words)
        assert counted.mean == mean and (remark_on_units(texts, mean) is None) == (mean in (1.0, None))
