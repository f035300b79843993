"""reproductions/recipes.py: its tables, and the cells that it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from cloze.comparison.sentence import as_data

from ..comparison.made import finding


@pytest.fixture
def recipes(script: Callable[[str], ModuleType]) -> ModuleType:
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
    write("finetune-x-given-xg", {"checkpoint": "given"})  # a candidate that is a checkpoint
    write("finetune-y-given-yg", {"checkpoint": "given"}, done=False)
    recipes.keep(tmp_path / "cells", tmp_path / "kept.jsonl", 2)
    recipes.restore(tmp_path / "kept.jsonl", tmp_path / "again")
    back = sorted(path.name for path in (tmp_path / "again").iterdir())
    assert back == ["finetune-x-a1-xa1", "finetune-x-given-xg", "finetune-y-a1-ya1", "pretrain-a1-a1"]
    assert json.loads((tmp_path / "again" / back[0] / "result.json").read_text()) == {"test": 0.5}
    assert json.loads((tmp_path / "again" / back[0] / "cell.json").read_text()) == {
        "kind": "finetune", "identity": {"checkpoint": "a1"}, "request": {}
    }  # fmt: skip


def test_a_recipe_is_a_row_of_means_in_percent(recipes: ModuleType) -> None:
    answer = finding(qualities={"gpt2": 0.7, "bert": 0.8})
    found = as_data(answer)
    rows = list(recipes.tables(found))
    best, other = found["systems"][:2]
    percent = [f"{100 * one['mean']:.1f} ± {100 * one['deviation']:.1f}" for one in (best["mean"], *best["tasks"].values())]
    assert rows[:4] == [
        found["answer"], "", "| recipe | mean | sentiment | names | held-out loss | minutes |", "|---|---|---|---|---|---|"
    ]  # fmt: skip
    assert rows[4] == f"| bert | {' | '.join(percent)} | {best['held_out']:.2f} | {best['cost']['seconds'] / 60:.0f} |"
    assert rows[5].startswith("| gpt2 | ") and len(rows) == 4 + len(found["systems"]) + 1
    assert rows[-1] == "| one answer for all | – | 50.0 | 20.0 | – | – |"
    timed = [{**one, "cost": {**one["cost"], "seconds": 300.0 + place}} for place, one in enumerate(found["systems"])]
    rows = list(recipes.tables({**found, "systems": timed}))
    assert rows[2].endswith("| held-out loss | million tokens |") and rows[4].endswith(f" | {best['cost']['tokens'] / 1e6:.1f} |")
    lost = {**other, "mean": None, "tasks": {}, "held_out": None, "cost": None}
    assert list(recipes.tables({**found, "systems": [lost, best]}))[4] == f"| {other['name']} | – | – | – | – | – |"
    given = {**best, "cost": None, "held_out": None, "trained_parameters": 12345}  # a checkpoint, which is not pre-trained
    rows = list(recipes.tables({**found, "systems": [given]}))
    assert rows[2:4] == ["| recipe | mean | sentiment | names | trained parameters |", "|---|---|---|---|---|"]
    assert rows[4:] == [f"| bert | {' | '.join(percent)} | 12,345 |", "| one answer for all | – | 50.0 | 20.0 | – |"]
