"""The order of permuted language modelling, against the masks of XLNet's code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.errors import RecipeError
from cloze.exercises.permutation import Permutation, ordered
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

NAMES = "abcdeSfC"
CHOSEN = np.array([[False, True, False, False, True, True, False, True]])  # targets b and e, functional S and C
RANKS = np.array([[6, 3, 0, 5, 1, 4, 2, 7]], dtype=np.uint32)


def blocked(order: np.ndarray, *, query: bool) -> dict[str, set[str]]:
    seen = order[None, :] < order[:, None] if query else order[None, :] <= order[:, None]
    return {name: {NAMES[j] for j in np.flatnonzero(~seen[i])} for i, name in enumerate(NAMES)}


def test_the_masks_are_those_of_the_worked_example() -> None:
    order = ordered(np.zeros((1, 8), np.int64), CHOSEN, RANKS)[0]
    content = blocked(order, query=False)
    everything = {"b", "e", "S", "C"}
    assert {content[name] == everything for name in "acdf"} == {True}
    assert (content["b"], content["e"]) == ({"S", "C"}, {"b", "S", "C"})
    assert (content["S"], content["C"]) == ({"C"}, set())
    query = blocked(order, query=True)
    assert (query["b"], query["e"]) == ({"b", "S", "C"}, {"b", "e", "S", "C"})


def reference(chosen: np.ndarray, target: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Who is blocked from whom, by the rule of `_local_perm` (zihangdai/xlnet), the diagonal of the content mask cleared."""
    own = np.where(chosen & target, ranks, np.where(chosen, ranks + 1, 0))
    mask = (own[:, None] <= ranks[None, :]) & chosen[None, :]
    mask[~chosen] = chosen[None, :]
    np.fill_diagonal(mask, False)
    return mask


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 12))
def test_any_order_gives_the_masks_of_the_authors_code(seed: int, length: int) -> None:
    g = np.random.default_rng(seed)
    chosen, ranks = g.random(length) < 0.5, g.permutation(length)
    target = chosen & (g.random(length) < 0.7)
    order = ordered(np.zeros((1, length), np.int64), chosen[None], ranks[None])[0]
    assert ((order[None, :] > order[:, None]) == reference(chosen, target, ranks)).all()


def example(rows: int = 200, width: int = 17) -> tuple[Rows, Draw]:
    g = np.random.default_rng(1)
    length = g.integers(6, width + 1, rows).astype(np.int32)
    tokens = g.integers(5, 99, (rows, width)).astype(np.int32)
    masked = g.random((rows, width)) < 0.3
    special = np.broadcast_to(np.arange(width), (rows, width)) == length[:, None] - 1
    made = Rows({"tokens": tokens, "length": length, "masked": masked & ~special, "special": special})
    return made, Draw(row_keys(7, "main", 0, items=np.arange(rows)))


@pytest.mark.parametrize("window", ["row", "half", 5])
def test_windows_see_all_that_came_before_and_nothing_of_what_follows(window: str | int) -> None:
    rows, draw = example()
    order = Permutation(window=window)(rows, draw)["order"]  # type: ignore[arg-type]
    columns = np.arange(17)
    for number in range(0, 200, 9):
        n = int(rows["length"][number])
        half = (n + 1) // 2
        of = {"row": columns * 0, "half": (columns >= half).astype(int)}.get(str(window), columns // 5)[:n]
        row, chosen = order[number, :n], (rows["masked"] | rows["special"])[number, :n]
        for i in range(n):
            assert (row[of < of[i]] < row[i]).all() or not (of < of[i]).any()
            context = (of == of[i]) & ~chosen
            assert (row[context] < row[i]).all() if chosen[i] else (row[context] == row[i]).all()
        assert len(set(row[chosen].tolist())) == int(chosen.sum())


def test_every_order_of_prediction_is_as_likely_as_any_other() -> None:
    width, count = 3, 60_000
    rows = Rows({
        "tokens": np.full((count, width), 9, np.int32), "length": np.full(count, width, np.int32),
        "masked": np.ones((count, width), bool), "special": np.zeros((count, width), bool),
    })
    order = Permutation()(rows, Draw(row_keys(3, "main", 0, items=np.arange(count))))["order"]
    _, counts = np.unique(order, axis=0, return_counts=True)
    assert len(counts) == 6 and abs(counts / count - 1 / 6).max() < 0.006


def test_rows_come_out_alike_alone_and_in_a_block() -> None:
    rows, draw = example()
    edit = Permutation(window="half")
    whole = edit(rows, draw)["order"]
    for number in (0, 17):
        alone = edit(rows.take(slice(number, number + 1)), draw.take(np.array([number])))["order"]
        assert (alone[0] == whole[number]).all()


def test_a_window_of_one_token_is_refused() -> None:
    with pytest.raises(RecipeError, match="at least 2 tokens"):
        Permutation(window=1)
