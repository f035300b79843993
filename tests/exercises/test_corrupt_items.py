"""`corrupt_items`: the shares of replaced, dropped and hidden items, and which items it leaves alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.items.corrupt_items import CorruptItems
from cloze.exercises.items.predict_items import PredictItems
from cloze.rng import Draw
from cloze.rows import Rows

TABLES = {"entities": SimpleNamespace(size=21, hidden=77)}


def corrupted(items: Any, *, more: dict[str, Any] | None = None, **arguments: Any) -> Any:
    rows = Rows({"items/entity": np.asarray(items, np.int32), **(more or {})})
    draw = Draw(np.arange(rows.count, dtype=np.uint64))
    return CorruptItems(tables=TABLES, **arguments)(rows, draw)["items/entity"]


def test_items_are_replaced_dropped_and_hidden_as_often_as_it_says() -> None:
    before = np.tile(np.arange(1, 21, dtype=np.int32), (500, 1))
    before[:, -1] = 0
    after = corrupted(before, other=0.2, drop=0.3, mask=0.1)
    known = before > 0
    changed = known & (after != before)
    shares = [(after == 0)[known].mean(), (after == 77)[known].mean(), (changed & (after > 0) & (after != 77))[known].mean()]
    assert shares == pytest.approx([0.3, 0.1, 0.2], abs=0.015)
    others = after[changed & (after > 0) & (after != 77)]
    assert set(others.tolist()) == set(range(1, 21)) and not after[~known].any()


def test_only_items_at_masked_tokens_change_if_it_says_so() -> None:
    links = np.array([[[0, 0], [1, 0], [2, 1], [-1, -1]], [[0, 1], [2, 0], [-1, -1], [-1, -1]]])
    masked = np.array([[False, True, False], [False, False, True]])
    after = corrupted([[4, 5], [6, 7]], more={"links/entity": links, "masked": masked}, of="masked", other=0.0, drop=1.0)
    assert after.tolist() == [[0, 5], [0, 7]]


def test_an_item_has_a_draw_for_each_of_its_masked_tokens_as_in_the_authors_code() -> None:
    """allenai/kb, kb/bert_pretraining_reader.py: `mask_entities` throws a coin for every masked token of a name, and names to be
    replaced (76-93) are written after those to be hidden (60-73): 1 - 0.9^k are replaced, 0.9^k - 0.1^k hidden, 0.1^k kept."""
    rows, most = 40_000, 3
    items = np.tile(np.arange(1, most + 1, dtype=np.int32), (rows, 1))  # item k has k masked tokens
    one = [(token, item) for token, item in enumerate(np.repeat(np.arange(most), np.arange(1, most + 1)).tolist())]
    more = {"links/entity": np.tile(np.array(one), (rows, 1, 1)), "masked": np.ones((rows, len(one)), bool)}
    after = corrupted(items, more=more, of="masked", other=0.1, drop=0.0, mask=0.8)
    hidden, kept = (after == 77).mean(0), (after == items).mean(0)
    counts = np.arange(1, most + 1)
    assert hidden == pytest.approx(0.9**counts - 0.1**counts, abs=0.008)
    assert kept == pytest.approx(0.1**counts, abs=0.005)
    assert 1 - hidden - kept == pytest.approx(1 - 0.9**counts, abs=0.008)


def test_targets_and_the_rows_that_come_in_stay_as_they_are() -> None:
    items, targets = np.array([[4, 5]], np.int32), np.array([[4, 5]], np.int32)
    rows = Rows({"items/entity": items, "targets/entity": targets, "positions/entity": np.array([[0, 1]])})
    after = CorruptItems(drop=1.0, other=0.0, tables=TABLES)(rows, Draw(np.zeros(1, np.uint64)))
    assert items.tolist() == [[4, 5]] and after["targets/entity"].tolist() == [[4, 5]] and not after["items/entity"].any()


def test_odds_above_one_and_unknown_tables_are_refused() -> None:
    with pytest.raises(RecipeError, match="must add up to at most 1, got 0.5 \\+ 0.4 \\+ 0.2"):
        CorruptItems(other=0.5, drop=0.4, mask=0.2)
    with pytest.raises(RecipeError, match="there is no table 'entitties'"):
        CorruptItems(table="entitties", tables=TABLES)
    with pytest.raises(RecipeError, match="needs the table 'entities' to run"):
        CorruptItems()(Rows({"items/entity": np.ones((1, 1), np.int32)}), Draw(np.zeros(1, np.uint64)))


def test_every_link_to_an_item_is_asked_before_items_are_dropped() -> None:
    rows = Rows({
        "items/entity": np.array([[4, 0], [6, 7]], np.int32),
        "links/entity": np.array([[[1, 0], [3, 1], [-1, -1]], [[0, 1], [2, 0], [5, 1]]]),
    })  # fmt: skip
    asked = PredictItems()(rows, Draw(np.zeros(2, np.uint64)))
    assert asked["targets/entity"].tolist() == [[4, -1, -1], [7, 6, 7]]
    assert asked["positions/entity"].tolist() == [[1, -1, -1], [0, 2, 5]]
