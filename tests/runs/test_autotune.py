"""Trying values of fastText's classifier within a time."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cloze.errors import BudgetError, TaskError
from cloze.runs.finetuning.autotune import MOVES, _written, moved, search_within
from cloze.runs.options import FinetuneOptions
from cloze.tasks.tuned_folder import read_task_entries

START = {
    "training.epochs": 5.0, "training.rate.peak": 0.1, "network.width": 10.0, "tables.ngrams.words": 2.0,
    "tables.ngrams.characters": 0.0, "tables.ngrams.buckets": 2e6,
}  # fmt: skip


def test_values_stay_within_the_limits_of_fasttext_and_come_nearer_as_time_passes() -> None:
    draw = np.random.default_rng(0)
    early = [moved(START, 0.0, draw) for _ in range(400)]
    late = [moved(START, 1.0, draw) for _ in range(400)]
    for path, move in MOVES.items():
        found = [one[path] for one in early]
        assert min(found) >= move.low and max(found) <= move.high and len(set(found)) > 1
    spread = [np.std(np.log2([one["network.width"] for one in some])) for some in (early, late)]
    assert 1.1 < spread[0] < 1.7 and 0.2 < spread[1] < 0.5


def test_the_best_trial_becomes_the_folder_and_given_values_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(0, 11)  # seconds, at every look
    monkeypatch.setattr("cloze.runs.finetuning.autotune.time", SimpleNamespace(monotonic=lambda: next(clock)))
    table = tmp_path / "rows.tsv"
    table.write_text("text\tlabel\n" + "good film\tyes\nbad film\tno\n" * 8, encoding="utf-8")
    said: list[str] = []
    tuned = search_within(FinetuneOptions(
        "fasttext-supervised", tmp_path / "out", str(table), str(table), tune="60s", report=said.append,
        overrides=["tables.ngrams.buckets=50", "network.width=8"],
    ))
    trials = json.loads((tmp_path / "out" / "cloze" / "trials.json").read_text())
    assert len(trials) == len(said) == 2 and said[0].startswith("trial 1: accuracy") and "(best)" in said[0]
    assert trials[0]["values"] == {
        "training.epochs": "5", "training.rate.peak": "0.1", "tables.ngrams.words": "1", "tables.ngrams.characters": "null",
    }  # fmt: skip
    assert tuned.task_json["dev"]["accuracy"] == max(one["accuracy"] for one in trials)
    assert read_task_entries(tmp_path / "out")["tuned"]["trials"] == len(trials)
    assert [path.name for path in tmp_path.iterdir() if path.name != "rows.tsv"] == ["out"]


def test_there_are_buckets_only_where_something_is_hashed() -> None:
    start = {path: float(move.begin) for path, move in MOVES.items()}
    paths = ("tables.ngrams.words", "tables.ngrams.characters")
    hashed = [_written({**start, path: 2.0})["tables.ngrams.buckets"] for path in paths]
    assert _written(start)["tables.ngrams.buckets"] == "1" and hashed == ["2000000", "2000000"]


def test_what_cannot_be_tried_is_refused(tmp_path: Path) -> None:
    for given, name, seeds, told in (
        ("5epochs", "fasttext-supervised", (1,), "expected a time"), ("5m", "bert", (1,), "starts without a checkpoint"),
        ("5m", "fasttext-supervised", (1, 2), "one seed"),
    ):
        with pytest.raises(TaskError, match=told):
            search_within(FinetuneOptions(name, tmp_path / "out", tune=given, seeds=seeds))
    with pytest.raises(TaskError, match="--tune 5m: searches for the values, so --as-published does not apply"):
        search_within(FinetuneOptions("fasttext-supervised", tmp_path / "out", tune="5m", fit=False))
    for further in ("extend", "keep_checkpoints", "mix_ngrams"):
        option = "--" + further.replace("_", "-")
        with pytest.raises(TaskError, match=f"keeps the best of many short runs, so {option} does not apply. Omit one of them"):
            search_within(FinetuneOptions("fasttext-supervised", tmp_path / "out", tune="5m", **{further: True}))
    assert not (tmp_path / "out").exists()
    with pytest.raises(BudgetError):
        search_within(FinetuneOptions("fasttext-supervised", tmp_path / "out", tune="soon"))
