"""Perplexity and bits by unit, counted by hand."""

from __future__ import annotations

from math import log

import pytest

from cloze.decoding.scores.perplexity import Perplexity
from cloze.decoding.scores.scoring import Score

SCORES = [Score(-6 * log(2), 3), Score(-2 * log(2), 1, unknown=1)]
TEXTS = ["a größe", "ß"]  # 3 words, 8 characters, 11 bytes


def test_a_total_is_divided_by_tokens_words_bytes_and_characters() -> None:
    found = Perplexity.of(TEXTS, SCORES)
    assert (found.token, found.word, found.byte, found.character, found.unknown, found.texts) == (4, 3, 11, 8, 1, 2)
    assert found["token"] == pytest.approx(2 ** (8 / 4)) and found["word"] == pytest.approx(2 ** (8 / 3))
    assert found["byte"] == pytest.approx(2 ** (8 / 11)) and found.bits("byte") == pytest.approx(8 / 11)
    assert found["character"] == pytest.approx(2) and found.bits("character") == pytest.approx(1)


def test_the_end_of_a_text_is_a_word_a_byte_and_a_character_where_it_is_scored() -> None:
    found = Perplexity.of(TEXTS, SCORES, ends=True)
    assert (found.token, found.word, found.byte, found.character) == (4, 5, 13, 10)


def test_nothing_scored_has_no_perplexity_and_one_beyond_all_numbers_is_bounded() -> None:
    assert Perplexity.of([""], [Score(0.0, 0)]).record()["perplexity"] is None
    assert Perplexity.of(["a"], [Score(0.0, 0)]).record()["bits_per_byte"] is None
    assert Perplexity.of(["a"], [Score(-5000.0, 1)])["token"] == pytest.approx(2.718281828459045**700)
