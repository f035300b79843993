"""Streams: lanes of one long text, rows that continue each other, both directions."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.corpus import BoundStreams, Store, Streams
from cloze.errors import CorpusError, RecipeError

MakeStore = Callable[..., Store]
ALL = frozenset({"tokens", "length", "sentence", "word_start"})
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def lanes_of(bound: BoundStreams, max_tokens: int, reuse: int, block: int = 5) -> list[list[int]]:
    """Every lane's tokens, read in blocks, what comes again taken off; tokens are numbers of the store, -1 a separator."""
    plan = bound.plan(0, max_tokens)
    found: list[list[int]] = [[] for _ in range(bound.lanes)]
    for first in range(0, len(plan), block):
        items = np.arange(first, min(first + block, len(plan)))
        rows = bound.read(plan, items, ALL)
        assert (rows["length"] == plan.lengths(items)).all()
        for number, item in enumerate(items):
            lane = found[item % bound.lanes]
            row = rows["tokens"][number, : rows["length"][number]].tolist()
            assert bool(rows["restarts"][number]) == (not lane)
            if lane and reuse:
                assert lane[-reuse:] == row[:reuse]
            lane += row[reuse:] if lane else row
    return [[-1 if token == 3 else token - 10 for token in lane] for lane in found]


@relaxed
@given(
    sizes=st.lists(st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=9).filter(lambda d: sum(map(sum, d)) >= 12),
    lanes=st.integers(1, 4), max_tokens=st.integers(2, 9), reuse=st.integers(0, 4), separated=st.booleans(),
)
def test_lanes_are_the_text_in_order_and_lose_only_a_remainder(
    make_store: MakeStore, sizes: list[list[int]], lanes: int, max_tokens: int, reuse: int, separated: bool
) -> None:
    reuse = min(reuse, max_tokens - 1)
    store = make_store(sizes)
    bound = Streams(reuse=reuse, separator="[SEP]" if separated else None).bind(store, seed=1, entry="main", lanes=lanes)
    text: list[int] = []
    number = 0
    for document in sizes:
        text += range(number, number + sum(document))
        number += sum(document)
        text += [-1] if separated and sum(document) else []
    assert bound.tokens == len(text)
    span = len(text) // lanes
    for lane, found in enumerate(lanes_of(bound, max_tokens, reuse)):
        expected = text[lane * span : (lane + 1) * span]
        assert found == expected[: len(found)]
        if span <= reuse:  # a lane with nothing but what it would repeat has no row
            assert found == []
        else:
            assert len(expected) - len(found) <= (1 if reuse == 0 else 0)  # a single last token would ask for nothing


def test_asking_for_the_next_token_asks_for_every_token_once(make_store: MakeStore) -> None:
    bound = Streams(reuse=1).bind(make_store([[30]]), seed=1, entry="main", lanes=2)
    plan = bound.plan(0, 5)
    rows = bound.read(plan, np.arange(len(plan)), ALL)
    asked = [int(t) - 10 for row, n in zip(rows["tokens"], rows["length"], strict=True) for t in row[1:n]]
    assert sorted(asked) == [*range(1, 15), *range(16, 30)]


def test_the_upper_lanes_read_the_same_text_from_its_end(make_store: MakeStore) -> None:
    store = make_store([[4, 3], [5]])
    bound = Streams(both_directions=True).bind(store, seed=1, entry="main", lanes=4)
    lanes = lanes_of(bound, 4, 0)
    assert lanes[:2] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert lanes[2:] == [lane[::-1] for lane in lanes[:2]]
    rows = bound.read(bound.plan(0, 6), np.arange(4), ALL)
    assert rows["reversed"].tolist() == [False, False, True, True]
    odd = lanes_of(Streams(both_directions=True).bind(store, seed=1, entry="main", lanes=3), 4, 0)
    assert odd == [*lanes[:2], lanes[2]]
    starts = [t % 3 != 1 for t in range(12)] + [True]
    assert rows["word_start"][0].tolist() == starts[:6]
    ends = [starts[t + 1] or t == 6 for t in range(12)]  # a word ends before the next one, and at the document's end
    assert rows["word_start"][2].tolist() == ends[:6][::-1]
    assert rows["sentence"].tolist() == [[0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]]


def test_separators_stand_behind_documents_and_belong_to_no_sentence(make_store: MakeStore) -> None:
    bound = Streams(separator="[SEP]").bind(make_store([[2, 1], [], [2]]), seed=1, entry="main", lanes=1)
    rows = bound.read(bound.plan(0, 7), np.arange(1), ALL)
    assert rows["tokens"][0].tolist() == [10, 11, 12, 3, 13, 14, 3]
    assert rows["sentence"][0].tolist() == [0, 0, 1, -1, 2, 2, -1]
    assert bool(rows["word_start"][0, 3]) and rows["document"].tolist() == [0]


def test_held_out_documents_are_a_text_of_their_own(make_store: MakeStore) -> None:
    store = make_store([[4]] * 40)
    parts = [Streams().bind(store, seed=1, entry="main", held_out=0.2, subset=part, lanes=1) for part in ("train", "held_out")]
    tokens = [set(lanes_of(part, 6, 0)[0]) for part in parts]
    assert not tokens[0] & tokens[1] and len(tokens[0] | tokens[1]) == 160


def test_draws_differ_between_rows_and_epochs_and_survive_pickling(make_store: MakeStore) -> None:
    bound = Streams().bind(make_store([[40]]), seed=1, entry="main", lanes=2)
    items = np.arange(4)
    draws = [bound.draw(bound.plan(epoch, 5), items).bits("mask") for epoch in (0, 1)]
    assert len(set(np.concatenate(draws).tolist())) == 8
    again = pickle.loads(pickle.dumps(bound))
    assert (again.draw(again.plan(1, 5), items).bits("mask") == draws[1]).all()


def test_what_cannot_be_read_is_refused_in_plain_words(make_store: MakeStore) -> None:
    store = make_store([[9]])
    with pytest.raises(CorpusError, match="a smaller batch"):
        Streams().bind(store, seed=1, entry="main", lanes=8)
    with pytest.raises(RecipeError, match="come again"):
        Streams(length=8, reuse=8)
    with pytest.raises(RecipeError, match="too small"):
        Streams(reuse=4).bind(store, seed=1, entry="main", lanes=1).plan(0, 4)


def test_a_stretch_from_elsewhere_begins_with_a_sentence_of_its_lane_as_it_is_read(make_store: MakeStore) -> None:
    store = make_store([[4, 3], [5], [2, 6, 4]])  # sentences begin at 0, 4, 7, 12, 14, 20
    bound = Streams(both_directions=True, separator="[SEP]").bind(store, seed=1, entry="main", lanes=2)
    want = frozenset({"tokens", "length", "distractor.tokens", "distractor.length", "distractor.sentence"})
    begins: list[set[int]] = [set(), set()]
    for epoch in range(30):
        plan = bound.plan(epoch, 6)
        rows = bound.read(plan, np.arange(len(plan)), want)
        for number in range(len(plan)):
            size = int(rows["distractor.length"][number])
            tokens = rows["distractor.tokens"][number, :size]
            begins[number % 2].add(int(tokens[0]) - 10)
            inner = tokens[tokens != 3]
            assert 1 <= size <= 6 and (np.diff(inner) == (1 if number % 2 == 0 else -1)).all()
            sentence = rows["distractor.sentence"][number, :size]
            assert ((sentence == -1) == (tokens == 3)).all()
    assert begins[0] == {0, 4, 7, 12, 14, 20, 3 - 10}  # a separator is a sentence of its own
    assert begins[1] == {3, 6, 11, 13, 19, 23, 3 - 10}
