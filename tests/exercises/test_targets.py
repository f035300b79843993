"""Edits on the companion that is to be written: one of its references, its end, and nothing but its tokens."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.exercises import TokenFacts
from cloze.exercises.companions.close import Close
from cloze.exercises.companions.only import OnlyCompanion
from cloze.exercises.companions.reference import Reference
from cloze.exercises.frame import Frame
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

FACTS = TokenFacts(50, {"[PAD]": 0, "[SEP]": 3}, np.arange(5, 50, dtype=np.int32), lambda text: [])


def draw(count: int, epoch: int = 0) -> Draw:
    return Draw(row_keys(1, "main", epoch, items=np.arange(count)))


def several() -> Rows:
    """Three records: references of 2, 1 and 0 tokens; one of 3 tokens; one of none."""
    return Rows({
        "tokens": np.array([[10, 11], [12, 0], [13, 14]], np.int32), "length": np.array([2, 1, 2], np.int32),
        "target.tokens": np.array([[20, 21, 22], [30, 31, 32], [0, 0, 0]], np.int32),
        "target.length": np.array([3, 3, 0], np.int32),
        "target.parts": np.array([[[0, 2], [2, 3], [3, 3]], [[0, 3], [-1, -1], [-1, -1]], [[0, 0], [-1, -1], [-1, -1]]]),
    })  # fmt: skip


def texts(rows: Rows) -> list[list[int]]:
    return [ids[:n].tolist() for ids, n in zip(rows["target.tokens"], rows["target.length"], strict=True)]


def test_over_the_epochs_every_reference_is_drawn_as_often() -> None:
    assert texts(Reference(take="first")(several(), draw(3))) == [[20, 21], [30, 31, 32], []]
    seen = [texts(Reference()(several(), draw(3, epoch))) for epoch in range(300)]
    counts = [sum(found[0] == one for found in seen) for one in ([20, 21], [22], [])]
    assert sum(counts) == 300 and min(counts) > 75
    assert all(found[1:] == [[30, 31, 32], []] for found in seen)


def test_a_closed_text_ends_with_its_end_and_leaves_the_row_its_half() -> None:
    first = Reference(take="first")(several(), draw(3))
    assert texts(Close(max_length=8, tokenizer=FACTS)(first, draw(3))) == [[20, 21, 3], [30, 31, 32, 3], [3]]
    assert texts(Close(max_length=3, tokenizer=FACTS)(first, draw(3))) == [[20, 21, 3], [30, 31, 3], [3]]
    assert (Close(max_length=8).for_length(10).max_length, Close(max_length=8).max_input(10)) == (5, 5)
    assert (Close(max_length=4).for_length(10).max_length, Close(max_length=4).max_input(10)) == (4, 6)
    assert texts(Close(max_length=8, tokenizer=FACTS).for_length(2)(first, draw(3))) == [[3], [3], [3]]


@pytest.mark.parametrize("max_length", [2, 4])
def test_only_the_tokens_of_the_companion_can_be_chosen(max_length: int) -> None:
    closed = Close(max_length=max_length, tokenizer=FACTS)(Reference(take="first")(several(), draw(3)), draw(3))
    rows = OnlyCompanion()(Frame("{A} [SEP] {target}", tokenizer=FACTS, keeps_empty=True)(closed, draw(3)), draw(3))
    free = [ids[:n][~special[:n]].tolist() for ids, n, special in zip(
        rows["tokens"], rows["length"], rows["special"], strict=True)]  # fmt: skip
    assert free == texts(closed) and rows["length"].tolist() == [3 + len(free[0]), 2 + len(free[1]), 3 + len(free[2])]
