"""reproductions/recipes.py: its tables, and the cells that it keeps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def recipes(script: Callable[[str], ModuleType]) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("task_files", "ledger"):
            patch.setitem(sys.modules, name, script(name))
        patch.setitem(sys.modules, "recipes", ModuleType("recipes"))  # where dataclasses look for the names of their annotations
        return script("recipes")


def test_a_run_is_kept_with_its_tasks_once_all_of_them_are_finished(recipes: ModuleType, tmp_path: Path) -> None:
    def write(folder: str, identity: dict[str, str], *, done: bool = True) -> None:
        path = tmp_path / "cells" / folder
        path.mkdir(parents=True)
        cell = {"kind": folder.partition("-")[0], "identity": identity, "request": {"store": "/somewhere"}}
        (path / "cell.json").write_text(json.dumps(cell))
        if done:
            (path / "result.json").write_text(json.dumps({"test": 0.5}))

    write("corpus-text-0", {})
    for key in ("a1", "b1", "c1"):
        write(f"pretrain-{key}-{key}", {}, done=key != "c1")
    for name, start in (("x", "a1"), ("y", "a1"), ("x", "b1")):
        write(f"finetune-{name}-{start}-{name}{start}", {"checkpoint": start})
    write("finetune-y-b1-yb1", {"checkpoint": "b1"}, done=False)
    recipes.keep(tmp_path / "cells", tmp_path / "kept.jsonl", 2)
    recipes.restore(tmp_path / "kept.jsonl", tmp_path / "again")
    back = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert back == ["finetune-x-a1-xa1", "finetune-y-a1-ya1", "pretrain-a1-a1"]
    assert json.loads((tmp_path / "again" / back[0] / "result.json").read_text()) == {"test": 0.5}
    assert json.loads((tmp_path / "again" / back[0] / "cell.json").read_text()) == {
        "kind": "finetune", "identity": {"checkpoint": "a1"}, "request": {}
    }  # fmt: skip


def test_a_recipe_is_a_row_of_means_in_percent(recipes: ModuleType) -> None:
    score = {"mean": 0.75, "deviation": 0.125, "number": 3, "runs": [], "constant": 0}
    once = {**score, "deviation": None}
    found = {
        "answer": "gpt2 is best.", "tasks": [{"name": "mood", "constant_answer": 0.5}],
        "systems": [
            {"name": "gpt2", "overall": score, "tasks": {"mood": once}, "held_out": 4.5, "cost": {"seconds": 120.0}},
            {"name": "bert", "overall": None, "tasks": {}, "held_out": None, "cost": None},
        ],
    }  # fmt: skip
    assert list(recipes.tables(found)) == [
        "gpt2 is best.",
        "",
        "| recipe | mean | mood | held-out loss | minutes |",
        "|---|---|---|---|---|",
        "| gpt2 | 75.0 ± 12.5 | 75.0 | 4.50 | 2 |",
        "| bert | – | – | – | – |",
        "| one answer for all | – | 50.0 | – | – |",
    ]
