"""Texts whose words are recorded: which tokens are linked with which recordings."""

from __future__ import annotations

import numpy as np
import pytest

from cloze import rng
from cloze.errors import RecipeError
from cloze.exercises.items.speak import Speak
from cloze.rng import Draw
from cloze.rows import Rows

#: [CLS] a b ##b c [SEP], [CLS] d ##d ##d [SEP] and padding
TOKENS = np.array([[2, 5, 6, 16, 7, 3], [2, 8, 18, 18, 3, 0]], np.int32)
STARTS = np.array([[1, 1, 1, 0, 1, 1], [1, 1, 0, 0, 1, 1]], bool)
SPECIAL = np.array([[1, 0, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0]], bool)


def rows(recorded: list[int], **more: np.ndarray) -> Rows:
    return Rows({
        "tokens": TOKENS, "length": np.array([6, 5], np.int32), "word_start": STARTS, "special": SPECIAL,
        "item_length/sounds": np.array(recorded, np.int32), **more,
    })  # fmt: skip


def spoken(given: Rows, **arguments: str) -> Rows:
    return Speak(**arguments)(given, Draw(rng.row_keys(1, items=np.arange(2))))


def links(found: Rows, row: int) -> list[list[int]]:
    return [pair for pair in found["links/sounds"][row].tolist() if pair[0] >= 0]


def test_a_recorded_word_has_one_position_and_a_text_without_recordings_stays() -> None:
    found = spoken(rows([3, 0]))
    assert found["length"].tolist() == [5, 5]
    assert found["tokens"][0, :5].tolist() == [2, 5, 6, 7, 3] and found["tokens"][1, :5].tolist() == [2, 8, 18, 18, 3]
    assert links(found, 0) == [[1, 0], [2, 1], [3, 2]] and links(found, 1) == []


def test_with_all_pieces_the_text_stays_and_every_token_is_linked_with_its_word() -> None:
    found = spoken(rows([3, 1]), pieces="all")
    assert np.array_equal(found["tokens"], TOKENS)
    assert links(found, 0) == [[1, 0], [2, 1], [3, 1], [4, 2]] and links(found, 1) == [[1, 0], [2, 0], [3, 0]]


def test_a_token_that_was_changed_hides_its_recording() -> None:
    changed = TOKENS.copy()
    changed[0, 2] = 4
    found = spoken(rows([3, 1], tokens=changed, original=TOKENS))
    assert links(found, 0) == [[1, 0], [3, 2]] and links(found, 1) == [[1, 0]]
    assert found["tokens"][0, :5].tolist() == [2, 5, 4, 7, 3]


def test_a_text_with_another_number_of_words_than_recordings_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"a text has 3 words and 2 recordings 'sounds'.*\n  Write texts without punctuation"):
        spoken(rows([2, 1]))
