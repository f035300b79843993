"""Streams in rows of random lengths: every token once, the published distribution, the same for all who ask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cloze.corpus import BoundStreams, Store, Streams
from cloze.errors import RecipeError

MakeStore = Callable[..., Store]


def bound(make_store: MakeStore, *, tokens: int = 400, subset: str = "train", seed: int = 1, **changed: float) -> BoundStreams:
    source = Streams(reuse=1, **{"spread": 2.0, "short": 0.2, **changed})  # type: ignore[arg-type]
    store = make_store([[10] * (tokens // 400)] * 40)
    return source.bind(store, seed=seed, entry="main", lanes=2, held_out=0.5 if subset == "held_out" else 0.0, subset=subset)  # type: ignore[arg-type]


def test_rows_follow_each_other_without_a_gap(make_store: MakeStore) -> None:
    streams = bound(make_store)
    plan = streams.plan(0, 21)
    lanes: list[list[int]] = [[], []]
    for item in range(len(plan)):
        rows = streams.read(plan, np.array([item]), frozenset({"tokens", "length"}))
        row = rows["tokens"][0, : rows["length"][0]].tolist()
        lane = lanes[item % 2]
        assert not lane or lane[-1] == row[0]
        lane += row[1:] if lane else row
    whole = streams.store.tokens.tolist()
    assert lanes == [whole[:200], whole[200:400]]


def test_all_lanes_of_a_step_are_as_long_and_no_row_is_longer_than_the_room(make_store: MakeStore) -> None:
    plan = bound(make_store).plan(0, 21)
    lengths = plan.lengths(np.arange(len(plan))).reshape(-1, 2)
    assert (lengths[:, 0] == lengths[:, 1]).all() and lengths.max() <= 21 and lengths[:-1].min() >= 6
    assert len(np.unique(lengths)) > 3


def test_lengths_are_those_of_awd_lstm(make_store: MakeStore) -> None:
    streams = bound(make_store, spread=5.0, short=0.05)
    streams.span = 2_000_000
    new = streams.plan(0, 91).length[:-1] - 1.0
    assert new.mean() == pytest.approx(68.25 - 0.5, abs=0.3)  # 0.95 · 70 + 0.05 · 35, rounded down
    assert (new < 52.5).mean() == pytest.approx(0.05, abs=0.005)
    assert new[new > 52.5].std() == pytest.approx(5.0, abs=0.1)


def test_an_epoch_is_a_function_of_the_seed_and_its_number(make_store: MakeStore) -> None:
    first, again, other = bound(make_store), bound(make_store), bound(make_store, seed=2)
    assert (first.plan(3, 21).length == again.plan(3, 21).length).all()
    assert first.plan(3, 21).length.tolist() != first.plan(4, 21).length.tolist()
    assert first.plan(3, 21).length.tolist() != other.plan(3, 21).length.tolist()


def test_held_out_rows_are_as_long_as_the_usual_ones(make_store: MakeStore) -> None:
    lengths = bound(make_store, tokens=4000, subset="held_out").plan(0, 21).length
    assert len(lengths) > 3 and set(lengths[:-1].tolist()) == {13}


def test_what_leaves_no_room_is_refused(make_store: MakeStore) -> None:
    with pytest.raises(RecipeError, match=r"streams\.spread"):
        bound(make_store, spread=5.0).plan(0, 21)
    with pytest.raises(RecipeError, match="share of rows"):
        Streams(short=1.5)
