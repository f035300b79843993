"""Subsampling and windows: which words stay, which pairs are asked, how often."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.batching.collate import collate, one_per_row
from cloze.errors import RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.noise.subsample import Subsample
from cloze.exercises.targets.windows import WindowPairs
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

ROLES = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
FACTS = TokenFacts(8, ROLES, np.arange(4, 8, dtype=np.int32), lambda text: [])
COUNTS = np.array([0, 5000, 0, 0, 94900, 5000, 98, 2])


def draw(rows: int) -> Draw:
    return Draw(row_keys(1, "main", 0, items=np.arange(rows)))


def block(rows: int, width: int, lengths: Any = None) -> Rows:
    tokens = np.arange(4, 4 + width, dtype=np.int32) + np.zeros((rows, 1), np.int32)
    length = np.full(rows, width) if lengths is None else np.asarray(lengths)
    return Rows({"tokens": tokens, "length": length.astype(np.int32)})


def subsample(**changed: Any) -> Subsample:
    return Subsample(**{"tokenizer": FACTS, "counts": COUNTS, **changed})


def asked(rows: Rows, row: int) -> list[tuple[int, int]]:
    """(position, target) of every target of a row."""
    positions, targets = rows["positions/main"][row].tolist(), rows["targets/main"][row].tolist()
    return [(position, target) for position, target in zip(positions, targets, strict=True) if position >= 0]


@pytest.mark.parametrize(("share", "code", "paper"), [(0.01, 0.416228, 0.316228), (0.05, 0.161421, 0.141421)])
def test_the_chance_to_stay_is_that_of_the_code_or_of_the_paper(share: float, code: float, paper: float) -> None:
    facts = TokenFacts(6, ROLES, np.arange(4, 6, dtype=np.int32), lambda text: [])
    counts = np.array([0, 0, 0, 0, round(1e6 * share), round(1e6 * (1 - share))])
    made = [Subsample(1e-3, formula=f, tokenizer=facts, counts=counts).keep[4] for f in ("code", "paper")]
    assert made == pytest.approx([code, paper], abs=1e-6)


def test_a_word_up_to_the_golden_ratio_squared_times_the_threshold_always_stays() -> None:
    facts = TokenFacts(6, ROLES, np.arange(4, 6, dtype=np.int32), lambda text: [])
    for share, stays in ((0.0026180, True), (0.0026181, False)):
        counts = np.array([0, 0, 0, 0, round(1e9 * share), round(1e9 * (1 - share))])
        assert bool(Subsample(1e-3, tokenizer=facts, counts=counts).keep[4] == 1) is stays


def test_frequencies_are_shares_of_the_known_words_or_of_all() -> None:
    words, tokens = subsample().keep, subsample(of="tokens").keep
    assert words[5] == pytest.approx((np.sqrt(50) + 1) / 50)
    assert tokens[5] == pytest.approx(np.sqrt(1e-3 * 105000 / 5000) + 1e-3 * 105000 / 5000)


def test_roles_never_stay_and_windows_close_over_them() -> None:
    rows = Rows({"tokens": np.array([[2, 4, 1, 5, 3, 6], [1, 1, 7, 4, 4, 4]], np.int32), "length": np.array([6, 3], np.int32)})
    out = subsample(threshold=None)(rows, draw(2))
    assert out["tokens"][0, :3].tolist() == [4, 5, 6] and out["tokens"][1, :1].tolist() == [7]
    assert out["length"].tolist() == [3, 1]
    assert asked(WindowPairs(radius=1, ask="context")(out, draw(2)), 0) == [(0, 5), (1, 4), (1, 6), (2, 5)]


def test_a_row_may_come_out_empty_and_asks_nothing() -> None:
    rows = Rows({"tokens": np.ones((2, 3), np.int32), "length": np.array([3, 3], np.int32)})
    out = WindowPairs()(subsample()(rows, draw(2)), draw(2))
    assert out["length"].tolist() == [0, 0] and out["positions/main"].shape == (2, 0)
    batch = collate(out, one_per_row(out["length"]), takes=frozenset({"tokens"}))
    assert batch["tokens"].shape == (2, 1) and not batch["block"].any()  # a column of padding


def test_words_stay_as_often_as_their_chance_says() -> None:
    rows = Rows({"tokens": np.tile(np.arange(4, 8, dtype=np.int32), (400, 50)), "length": np.full(400, 200, np.int32)})
    out = subsample()(rows, draw(400))
    inside = np.arange(out["tokens"].shape[1]) < out["length"][:, None]
    shares = np.bincount(out["tokens"][inside], minlength=8)[4:] / 20000
    np.testing.assert_allclose(shares, subsample().keep[4:], atol=0.015)


def test_without_counts_or_with_a_threshold_of_nothing_it_says_so() -> None:
    with pytest.raises(RecipeError, match="counts of a corpus"):
        subsample(counts=None)(block(1, 3), draw(1))
    with pytest.raises(RecipeError, match="threshold 0"):
        subsample(threshold=0)
    assert subsample(counts=None, threshold=None).keep.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_both_directions_ask_the_same_pairs() -> None:
    rows = block(1, 3)
    assert asked(WindowPairs(2, shrink="none", ask="context")(rows, draw(1)), 0) == [
        (0, 5), (0, 6), (1, 4), (1, 6), (2, 4), (2, 5),
    ]
    assert asked(WindowPairs(2, shrink="none", ask="centre")(rows, draw(1)), 0) == [
        (1, 4), (2, 4), (0, 5), (2, 5), (0, 6), (1, 6),
    ]


def test_together_asks_once_and_names_the_pairs() -> None:
    out = WindowPairs(1, shrink="none", together=True)(block(2, 4, [3, 1]), draw(2))
    assert asked(out, 0) == [(0, 4), (1, 5), (2, 6)] and asked(out, 1) == []  # a word alone is not asked
    assert out["centers"][0].tolist() == [0, 1, 1, 2] and out["contexts"][0].tolist() == [1, 0, 2, 1]
    assert (out["centers"][1] == -1).all() and (out["contexts"][1] == -1).all()


def test_columns_of_pairs_become_flat_places() -> None:
    out = WindowPairs(1, shrink="none", together=True)(block(3, 4, [3, 1, 2]), draw(3))
    laid = collate(out, one_per_row(out["length"]), takes=frozenset({"tokens"}))
    assert laid["centers"].tolist() == [0, 1, 1, 2, 6, 7] and laid["contexts"].tolist() == [1, 0, 2, 1, 7, 6]
    assert laid["positions/main"].tolist() == [0, 1, 2, 6, 7] and laid["targets/main"].tolist() == [4, 5, 6, 4, 5]


def test_blocks_below_each_other_have_no_pair_where_one_has_fewer() -> None:
    parts = [WindowPairs(1, shrink="none", together=True)(block(1, width), draw(1)) for width in (4, 2)]
    assert Rows.concatenate(parts)["centers"].tolist() == [[0, 1, 1, 2, 2, 3], [0, 1, -1, -1, -1, -1]]


def test_a_shrinking_window_reaches_a_distance_in_proportion() -> None:
    out = WindowPairs(5, ask="context")(block(300, 200), draw(300))
    positions, targets = out["positions/main"], out["targets/main"]
    middle = (positions >= 20) & (positions < 180)
    distances = Counter(np.abs(targets[middle] - 4 - positions[middle]).tolist())
    shares = [distances[d] / (2 * 300 * 160) for d in range(1, 6)]
    assert shares == pytest.approx([1, 0.8, 0.6, 0.4, 0.2], abs=0.01)


@given(st.integers(1, 9), st.integers(1, 6), st.sampled_from(["uniform", "none"]), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_pairs_are_neighbours_inside_the_row_centre_by_centre(width: int, radius: int, shrink: Any, seed: int) -> None:
    length = np.random.default_rng(seed).integers(0, width + 1, 4)
    keys = Draw(row_keys(seed, "main", 0, items=np.arange(4)))
    centres, contexts = WindowPairs(radius, shrink=shrink).pairs(width, length, keys)
    for row in range(4):
        pairs = [(a, b) for a, b in zip(centres[row].tolist(), contexts[row].tolist(), strict=True) if a >= 0]
        assert pairs == sorted(set(pairs))
        assert all(a != b and abs(a - b) <= radius and a < length[row] and 0 <= b < length[row] for a, b in pairs)
        nearest = {(a, b) for a in range(length[row]) for b in (a - 1, a + 1) if 0 <= b < length[row]}
        assert nearest <= set(pairs)  # a window reaches at least one word


@pytest.mark.parametrize("wrong", [{"radius": 0}, {"together": True, "ask": "context"}])
def test_windows_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="windows: "):
        WindowPairs(**wrong)
