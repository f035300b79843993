"""`pair` against the authors' rules, worked out row by row: the length of a random B, the cut at the half, who is asked what."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.companions.pair import Pair

TARGET = 40


def sizes_of(out):
    """(B, 2) how many tokens A and B have."""
    return np.diff(out["parts"], axis=2)[:, :, 0]


def brief(passages, count=3000):
    """Passages of 2 … 10 tokens that were cut for 40, as the ends of documents are, with distractors of up to 40."""
    rows = passages(count, sentence=4)
    return rows.having(length=np.minimum(rows["length"], 2 + np.arange(count) % 9).astype(np.int32))


def test_a_random_second_segment_fills_the_row_to_the_length_that_its_passage_was_cut_for(passages, draw):
    rows = brief(passages)
    out = Pair()(rows, draw(rows.count))
    wrong = out["targets/next"] == 1
    a, b = sizes_of(out).T
    available = rows["distractor.length"]
    expected = np.minimum(np.maximum(-(-(TARGET - a) // 4), 1) * 4, available)  # whole sentences of four tokens
    assert (b[wrong] == expected[wrong]).all()
    assert np.mean((a + b)[wrong & (available == 40)]) > 39


def test_a_deliberately_short_passage_takes_a_short_random_segment(passages, draw):
    rows = brief(passages).having(target_length=np.full(3000, 12, np.int32))
    out = Pair()(rows, draw(3000))
    a, b = sizes_of(out)[out["targets/next"] == 1].T
    assert (a + b).max() < 12 + 4


def test_the_random_segment_is_trimmed_only_where_both_exceed_the_room(passages, draw):
    rows = brief(passages)
    out = Pair().for_length(TARGET)(rows, draw(rows.count))
    assert sizes_of(out).sum(1).max() == TARGET
    assert Pair().takes >= {"target_length"} and "target_length" not in Pair(unit="sentence").takes


def test_packing_keeps_a_random_segment_within_its_passage(passages, draw):
    rows = brief(passages)
    out = Pair().for_length(TARGET).without_growth()(rows, draw(rows.count))
    assert (sizes_of(out).sum(1) <= rows["length"]).all()


@pytest.mark.parametrize("limit", [20, 21, 27])
def test_what_exceeds_the_room_is_taken_from_the_longer_segment_and_from_b_where_both_are_equal(passages, draw, limit):
    rows = passages(1500)
    whole, trimmed = (sizes_of(edit(rows, draw(1500))) for edit in (Pair(), Pair().for_length(limit)))
    assert (whole.sum(1) > limit).sum() > 500
    for (a, b), got in zip(whole.tolist(), trimmed.tolist(), strict=True):
        while a + b > limit:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert got == [a, b]


# ---- ELECTRA ---------------------------------------------------------------------------------------------------------


def ragged(passages, count=4000):
    """Passages of up to 40 tokens in sentences of 1 to 12, cut for 40 or less."""
    g = np.random.default_rng(5)
    rows = passages(count, distractor=False)
    starts = np.cumsum(g.integers(1, 13, (count, 40)), axis=1)
    sentence = (starts[:, None, :] <= np.arange(40)[None, :, None]).sum(2).astype(np.int32)
    return rows.having(sentence=sentence, target_length=g.integers(2, 41, count).astype(np.int32))


def test_the_half_ends_before_or_after_the_sentence_that_reaches_it(passages, draw):
    rows = ragged(passages)
    edit = Pair(rate=0, cut="half")
    assert edit.takes == {"tokens", "length", "sentence", "target_length"}
    a = sizes_of(edit(rows, draw(rows.count)))[:, 0]
    beyond = []
    for row in range(rows.count):
        ends = [*(np.flatnonzero(np.diff(rows["sentence"][row, : rows["length"][row]])) + 1), rows["length"][row]]
        half = rows["target_length"][row] // 2
        under = [end for end in ends if end < half]
        if not under or len(under) == len(ends):
            assert a[row] == (ends[0] if not under else ends[-1])
        else:
            assert a[row] in (under[-1], ends[len(under)])
            beyond.append(a[row] != under[-1])
    assert len(beyond) > 1000 and abs(np.mean(beyond) - 0.5) < 4 * np.sqrt(0.25 / len(beyond))


def test_the_first_segment_has_nearly_half_of_a_full_row_as_in_the_authors_data(passages, draw):
    rows = passages(2000, width=120, sentence=5, distractor=False)
    rows = rows.having(length=np.full(2000, 120, np.int32))
    share = sizes_of(Pair(rate=0, cut="half")(rows, draw(2000)))[:, 0] / 120
    assert np.quantile(share, 0.05) > 0.45 and np.quantile(share, 0.95) < 0.51  # at a random border: .06 and .94


def test_segments_may_be_trimmed_at_their_ends(passages, draw):
    rows = passages(1500, distractor=False)
    whole, trimmed = (edit(rows, draw(1500))["parts"] for edit in (Pair(rate=0), Pair(rate=0, trim="end").for_length(21)))
    assert (trimmed[:, :, 0] == whole[:, :, 0]).all()
    a, b = np.diff(whole, axis=2)[:, :, 0].T
    assert (np.diff(trimmed, axis=2)[:, 0, 0] == np.minimum(a, 21)).all()
    assert (np.diff(trimmed, axis=2)[:, 1, 0] == np.minimum(b, 21 - np.minimum(a, 21))).all()


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_albert_gives_a_passage_of_one_sentence_a_random_second_segment_and_calls_it_swapped(passages, draw):
    rows = passages(2000)
    edit = Pair(wrong="swapped", alone="random_document")
    assert edit.joins == ("distractor",) and "positions/next" not in edit.gives
    out = edit(rows, draw(2000))
    alone = rows["length"] <= 8
    assert alone.sum() > 200 and (out["targets/next"][alone] == 1).all()
    assert (out["parts"][alone, 1, 0] == 40).all() and (out["parts"][~alone] <= 40).all()
    a, b = sizes_of(out)[alone].T
    assert (b >= np.minimum(TARGET - a, rows["distractor.length"][alone])).all()


def test_the_right_pair_may_have_another_answer_than_0(passages, draw):
    rows = passages(500)
    usual, turned = (Pair(wrong="swapped", right=right)(rows, draw(500)) for right in (0, 1))
    assert (turned["parts"] == usual["parts"]).all()
    assert (turned["targets/next"] == 1 - usual["targets/next"]).all()
    three = Pair(wrong=["swapped", "random_document"], right=1)
    assert three.labels == {"swapped": 0, "random_document": 2}


def test_passages_that_stay_one_segment_are_refused_where_they_would_get_a_random_b():
    with pytest.raises(RecipeError, match=r"pair: single is 0\.1: passages that stay one segment would get"):
        Pair(rate=0.5, single=0.1)
    Pair(rate=0.5, single=0.1, wrong="swapped")


@pytest.mark.parametrize("arguments", [{"right": 2}, {"right": -1}, {"right": 1, "rate": 0.0}])
def test_an_answer_that_no_way_leaves_free_is_refused(arguments):
    with pytest.raises(RecipeError, match="pair: right is"):
        Pair(**arguments)
