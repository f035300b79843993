"""Rows in memory for fine-tuning: a random share of them for dev, their numbers in errors, dates, columns with one name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

import cloze
from cloze.api.texts import keep
from cloze.api.train import _divided
from cloze.errors import TaskError
from cloze.tasks import task as make_task
from cloze.tasks.in_memory import each_item, plain

ROWS = [("the cat sleeps", "animal"), ("rain on the garden", "weather")] * 4


def test_a_random_split_leaves_every_class_a_row_to_train_on() -> None:
    rows = [(f"text {number}", label) for number, label in enumerate(["rare", *["x", "y"] * 5])]
    for seed in range(8):
        train, dev, numbers = _divided(rows, 0.5, make_task("sentence_classification"), seed)
        assert len(dev) == 6 and {row["label"] for row in train} == {"rare", "x", "y"}
        assert sorted([*numbers["train"], *numbers["dev"]]) == list(range(1, 12))
        assert [rows[number - 1][0] for number in numbers["dev"]] == [row["text"] for row in dev]


def test_a_random_split_of_numbers_is_not_drawn_from_the_frequent_ones() -> None:
    rows = [(f"text {number}", 0.0 if number < 4 else number / 7) for number in range(20)]
    drawn = {row["label"] for seed in range(8) for row in _divided(rows, 0.2, make_task("regression"), seed).dev}
    assert len(drawn) > 8


def test_an_error_about_a_row_of_a_random_split_has_its_number_among_the_rows_that_were_given(
    folder: Callable[[str], Path],
) -> None:
    with pytest.raises(TaskError, match=r"^train: row 8: an empty 'label'"):
        cloze.finetune(folder("bert"), train=[*ROWS[:-1], ("rain", "")], dev=0.25, report=None)


def test_dates_and_decimals_of_a_frame_are_texts_and_numbers() -> None:
    assert plain([date(2026, 1, 2), datetime(2026, 1, 2, 3), Decimal("0.5")]) == ["2026-01-02", "2026-01-02T03:00:00", 0.5]


def test_a_value_that_json_lacks_is_refused_with_the_number_of_its_row(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="^row 2: expected texts, numbers and lists of them, got text: str, label: object"):
        keep(tmp_path, "train", [{"text": "a"}, {"text": "b", "label": object()}], "train")
    assert list(tmp_path.iterdir()) == []


def test_columns_with_one_name_are_refused_because_a_row_has_one_of_them() -> None:
    pandas_frame = SimpleNamespace(columns=["text", "label", "label"], iterrows=None)
    arrow_table = SimpleNamespace(column_names=["text", "text"], to_pylist=list)
    for frame, name in ((pandas_frame, "label"), (arrow_table, "text")):
        with pytest.raises(TaskError, match=f"^two columns are named '{name}'; expected different names"):
            next(each_item(frame))
