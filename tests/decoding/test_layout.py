"""Texts laid out as the network reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloze.decoding.layout import Layout, _shares
from cloze.decoding.lengths import by_length
from cloze.errors import UserError


class Words:
    """A tokenizer of words that are numbers."""

    roles = {"[CLS]": 1, "[SEP]": 2}
    size = 100
    ordinary_ids = np.arange(3, 100, dtype=np.int32)
    sentinels: tuple[int, ...] = ()
    spellings: tuple[str, ...] = ()
    description = ""

    def encode(self, text: str) -> Any:
        raise AssertionError("these templates hold no literal text")


def ids(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


def test_a_pair_gets_segments_and_parts_as_in_pre_training() -> None:
    framed = Layout("[CLS] {A} [SEP] {B} [SEP]", Words())([ids(10, 11), ids(20)])
    assert framed.ids.tolist() == [1, 10, 11, 2, 20, 2]
    assert framed.segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert framed.part.tolist() == [-1, 0, 0, -1, 1, -1]
    assert framed.cut == 0


def test_an_empty_text_keeps_the_tokens_around_it() -> None:
    assert Layout("[CLS] {A} [SEP]", Words())([ids()]).ids.tolist() == [1, 2]
    assert Layout("{A}", Words())([ids()]).ids.tolist() == []


def test_the_longer_text_is_cut_first() -> None:
    layout = Layout("[CLS] {A} [SEP] {B} [SEP]", Words())
    framed = layout([ids(10, 11, 12, 13), ids(20, 21)], max_length=7)
    assert framed.ids.tolist() == [1, 10, 11, 2, 20, 21, 2] and framed.cut == 2
    framed = layout([ids(10, 11, 12, 13), ids(20, 21, 22, 23)], max_length=8)
    assert framed.ids.tolist() == [1, 10, 11, 12, 2, 20, 21, 2]  # of equals the second gives way


def test_a_length_without_room_is_an_error_that_says_so() -> None:
    with pytest.raises(UserError, match="leaves no room"):
        Layout("[CLS] {A} [SEP]", Words())([ids(10)], max_length=2)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=3), st.integers(0, 60))
def test_shares_fill_the_room_and_never_exceed_a_text(lengths: list[int], max_tokens: int) -> None:
    kept = _shares(lengths, max_tokens)
    assert sum(kept) == min(max_tokens, sum(lengths))
    assert all(0 <= k <= n for k, n in zip(kept, lengths, strict=True))
    level = max(kept)
    assert all(k == n or k >= level - 1 for k, n in zip(kept, lengths, strict=True))


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 8), st.integers(1, 100))
def test_batches_by_length_hold_every_row_once(lengths: list[int], rows: int, tokens: int) -> None:
    batches = [batch.tolist() for batch in by_length(lengths, rows=rows, tokens=tokens)]
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) <= rows and len(b) * max(lengths[i] for i in b) <= tokens for b in batches)
    assert [lengths[i] for b in batches for i in b] == sorted(lengths, reverse=True)
