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
LAYER = np.array([[0, 1, 1, 2, 1, 0], [0, 1, 2, 2, 0, 0]], np.int32)
LABELS = np.array([[0, 1, 2, 2, 3, 0], [0, 1, 1, 1, 0, 0]], np.int32)
SPECIAL = np.array([[1, 0, 0, 0, 0, 1], [1, 0, 0, 0, 1, 0]], bool)


def rows(recorded: list[int], **more: np.ndarray) -> Rows:
    return Rows({
        "tokens": TOKENS, "length": np.array([6, 5], np.int32), "special": SPECIAL,
        "layers/linked": LAYER, "labels/linked": LABELS, "item_length/sounds": np.array(recorded, np.int32), **more,
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


def test_what_is_not_said_is_dropped_and_a_text_that_was_cut_loses_the_links_of_its_end() -> None:
    pause, cut = np.where(LABELS == 2, 0, LABELS), rows([3, 5])
    found = spoken(cut.having_all({"layers/linked": np.where(pause > 0, LAYER, 0), "labels/linked": pause}))
    assert found["tokens"][0, :4].tolist() == [2, 5, 7, 3] and links(found, 0) == [[1, 0], [2, 2]]
    assert found["tokens"][1, :3].tolist() == [2, 8, 3] and links(found, 1) == [[1, 0]]


def test_recordings_of_no_known_word_are_refused() -> None:
    silent = np.where(np.arange(2)[:, None] == 1, LABELS, 0)
    said = r"a text has 2 recordings 'sounds'.*\n  Build the store from the texts.*OUT\.SOURCE\.jsonl"
    with pytest.raises(RecipeError, match=said):
        spoken(rows([2, 1], **{"labels/linked": silent}))
