"""Rows of one batch dealt to several entries: exact shares, own answers, own epochs, any block."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from cloze.batching import Cursor, Data, Feed, MixedFeed
from cloze.batching.collate import collate, one_per_row
from cloze.batching.deck import Deck
from cloze.exercises.companions.answer import DecoderAnswer
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.targets.predict import Predict
from cloze.rows import Rows
from tests.batching.test_feed import FACTS, Numbers, feed


def next_feed(count: int = 7):  # type: ignore[no-untyped-def]
    edits = [Frame("[CLS] {A} [SEP]", tokenizer=FACTS), Predict("next", set="following")]
    return Feed(
        Numbers(count, seed=3), [PlacedEdit(e) for e in edits], length=14, takes=frozenset({"tokens"}), padding=0
    )


def mixed(odds: dict[str, float] | None = None) -> MixedFeed:
    return MixedFeed({"masked": feed(), "causal": next_feed()}, odds or {"masked": 2, "causal": 1}, seed=5)


def test_every_round_deals_rows_in_exact_proportion_and_counts_each_entrys_own_rows():
    deck = Deck({"a": 2, "b": 1}, seed=1)
    entry, nth = deck.entries(np.arange(30))
    assert np.bincount(entry.reshape(10, 3).ravel()).tolist() == [20, 10]
    assert all((np.bincount(round_, minlength=2) == [2, 1]).all() for round_ in entry.reshape(10, 3))
    assert nth[entry == 0].tolist() == list(range(20)) and nth[entry == 1].tolist() == list(range(10))
    later, later_nth = deck.entries(np.arange(11, 17))
    assert later.tolist() == entry[11:17].tolist() and later_nth.tolist() == nth[11:17].tolist()


def test_rows_ask_only_what_their_own_entry_asks():
    (part,) = mixed().micro_batches([(0, np.arange(6))], [6])
    entry, _ = Deck({"masked": 2, "causal": 1}, seed=5).entries(np.arange(6))
    width = part.arrays["tokens"].shape[1]
    assert set(part.arrays["positions/main"] // width) == set(np.flatnonzero(entry == 0))
    assert set(part.arrays["positions/following"] // width) == set(np.flatnonzero(entry == 1))


def test_a_row_is_the_same_in_any_block_and_in_a_worker():
    whole = mixed().micro_batches([(0, np.arange(40, 60))], [1] * 20)
    there = pickle.loads(pickle.dumps(mixed()))
    for number, part in enumerate(whole):
        (alone,) = there.micro_batches([(0, np.array([40 + number]))], [1])
        assert alone.arrays.keys() == part.arrays.keys() or not set(alone.arrays) - set(part.arrays)
        assert np.array_equal(alone.arrays["tokens"], part.arrays["tokens"])


def test_a_rate_that_changes_is_followed_in_rows_that_are_dealt():
    from tests.batching.test_feed import masking

    def part(rate, share):
        made = MixedFeed({"masked": masking(rate), "causal": next_feed()}, {"masked": 2, "causal": 1}, seed=5)
        return made.when(share).micro_batches([(0, np.arange(6))], [6])[0].arrays

    falling = part(lambda share: 0.9 - 0.6 * share, 0.5)
    assert all(np.array_equal(falling[name], value) for name, value in part(0.6, 0.0).items())
    assert not np.array_equal(falling["tokens"], part(0.9, 0.0)["tokens"])


def test_an_entrys_epochs_follow_on_each_other_whatever_the_other_entry_does():
    shared, alone = mixed(), next_feed()
    entry, nth = shared.deck.entries(np.arange(60))
    parts = shared.micro_batches([(0, np.arange(60))], [1] * 60)
    expected = [(e, r) for e in range(3) for r in range(7)]
    for number in np.flatnonzero(entry == 1):
        epoch, row = expected[nth[number]]
        (own,) = alone.micro_batches([(epoch, np.array([row]))], [1])
        assert np.array_equal(own.arrays["tokens"], parts[number].arrays["tokens"])


def test_data_deals_the_mixture_to_ranks_and_goes_on_at_any_cursor():
    both = [Data({"main": mixed()}, batch=8, rank=rank, ranks=2) for rank in (0, 1)]
    one = Data({"main": mixed()}, batch=8)
    (whole,), after = one.next("main", Cursor(0, 8))
    halves = [data.next("main", Cursor(0, 8))[0][0] for data in both]
    assert after == Cursor(0, 16)
    assert sum(half.batch["targets/main"].shape[0] for half in halves) == whole.batch["targets/main"].shape[0]
    assert sum(half.tokens for half in halves) == whole.tokens


def test_a_phase_changes_the_odds_of_rows():
    data = Data({"main": mixed()}, batch=6)
    data.change({"odds.masked": 0, "odds.causal": 1})
    (micro,), _ = data.next("main", Cursor())
    assert len(micro.batch["targets/main"]) == 0 and len(micro.batch["targets/following"]) > 0


def test_other_odds_begin_a_new_series_and_do_not_depend_on_the_phases_before():
    gone_on, resumed = Data({"main": mixed()}, batch=6), Data({"main": mixed()}, batch=6)
    assert gone_on.change({"odds.masked": 1, "odds.causal": 4})
    assert gone_on.change({"odds.causal": 3}) and resumed.change({"odds.causal": 3})
    assert gone_on.feeds["main"].now == resumed.feeds["main"].now == {"masked": 2.0, "causal": 3.0}
    assert not resumed.change({"odds.causal": 3})
    (before,), _ = Data({"main": mixed()}, batch=6).next("main", Cursor(0, 6))
    (after,), _ = resumed.next("main", Cursor(1, 0))  # the next epoch, as the loop begins it
    assert resumed.feeds["main"]._addresses("masked", feed(), np.array([1]), np.array([0]))[0].tolist() == [1 << 20]
    assert before.tokens and after.tokens


def test_an_answer_about_the_whole_row_is_asked_only_where_its_block_asked_it():
    tokens, length = np.ones((2, 3), np.int32), np.full(2, 3, np.int32)
    asking = Rows({"tokens": tokens, "length": length, "targets/next": np.array([1, 0], np.int32)})
    silent = Rows({"tokens": tokens[:, :2], "length": np.full(2, 2, np.int32)})
    block = Rows.concatenate_mixed([silent, asking])
    laid = collate(block, one_per_row(block["length"]), takes=frozenset({"tokens"}))
    assert laid["targets/next"].tolist() == [1, 0] and laid["positions/next"].tolist() == [2, 3]


@pytest.mark.parametrize("size", [1, 3])
def test_a_second_sequence_is_padded_to_its_own_length_and_its_targets_have_positions_in_it(size: int):
    rows = Rows({
        "tokens": np.array([[5, 6, 7]] * size, np.int32), "length": np.full(size, 3, np.int32),
        "decoder.tokens": np.array([[1, 8], [1, 0], [1, 9]], np.int32)[:size],
        "decoder.length": np.array([2, 1, 2], np.int32)[:size],
        "decoder.targets/main": np.array([[8, 9], [4, 0], [7, 7]])[:size],
        "decoder.positions/main": np.array([[0, 1], [0, -1], [0, 1]])[:size],
    })
    whole = Feed(Numbers(), [PlacedEdit(DecoderAnswer())], length=16, takes=frozenset({"tokens"}), padding=3, fixed=True)
    (part,) = whole.laid_out(rows, None, [size])
    laid = part.arrays
    assert laid["tokens"].shape == (size, 16) and "targets/main" not in laid
    assert laid["decoder.targets/main"].tolist() == [8, 9, 4, 7, 7][: {1: 2, 3: 5}[size]]
    assert laid["decoder.positions/main"].tolist() == [0, 1, 2, 4, 5][: {1: 2, 3: 5}[size]]
    if size == 3:
        assert laid["decoder.tokens"].tolist() == [[1, 8], [1, 3], [1, 9]]
        assert laid["decoder.block"].tolist() == [[1, 1], [1, 0], [1, 1]]
    else:
        assert "decoder.block" not in laid


def test_links_become_flat_places_of_tokens_and_items():
    rows = Rows({
        "tokens": np.ones((2, 4), np.int32), "length": np.array([4, 3], np.int32),
        "items/ngram": np.array([[7, 8, 0], [9, 0, 0]]),
        "links/ngram": np.array([[[0, 0], [1, 0], [3, 1]], [[2, 0], [-1, -1], [-1, -1]]]),
    })
    laid = collate(rows, one_per_row(rows["length"]), takes=frozenset({"tokens", "items/ngram", "links/ngram"}))
    assert laid["links/ngram"].tolist() == [[0, 0], [1, 0], [3, 1], [6, 3]]
    assert laid["items/ngram"].tolist() == [[7, 8, 0], [9, 0, 0]]


def test_rows_of_other_entries_have_no_numbers_to_learn() -> None:
    tokens = {"tokens": np.ones((2, 4), np.int32), "length": np.full(2, 4, np.int32)}
    numbers = Rows({**tokens, "values/label": np.array([[3.0], [5.0]], np.float32)})
    words = Rows({**tokens, "targets/main": np.ones((2, 1), np.int32), "positions/main": np.ones((2, 1), np.int32)})
    rows = Rows.concatenate_mixed([numbers, words])
    batch = collate(rows, one_per_row(rows["length"]), takes=frozenset({"tokens"}))
    assert batch["values/label"].tolist() == [[3.0], [5.0]] and batch["positions/label"].tolist() == [0, 1]
