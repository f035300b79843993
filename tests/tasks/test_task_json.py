"""task.json with entries of other types is refused by name, before anything is read for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloze.errors import CheckpointError
from cloze.tasks.tuned_folder import read_task_json, task_in_folder

RIGHT: dict[str, Any] = {
    "task": "sentence_classification", "columns": {"text": "text", "text_b": None, "label": "label"}, "head": "classification",
    "labels": ["a", "b"], "length": None, "dev": {"accuracy": 0.5, "threshold": None}, "trials": [{"metrics": {"accuracy": 0.5}}],
}  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), [
    ({"columns": None}, "columns is null; expected an object with names of columns"),
    ({"columns": ["text"]}, r"columns is \['text'\]; expected an object with names of columns"),
    ({"task": 5}, "task is 5; expected the name of a task"),
    ({"head": {}}, r"head is \{\}; expected the name of a head"),
    ({"labels": "ab"}, "labels is 'ab'; expected a list of different names"),
    ({"labels": ["a", "a"]}, r"labels is \['a', 'a'\]; expected a list of different names"),
    ({"length": 10**400}, "length is a huge number; expected a whole number"),
    ({"length": "16"}, "length is '16'; expected a whole number"),
    ({"dev": {"accuracy": "x"}}, "dev is .*; expected an object with numbers"),
    ({"trials": [5]}, "trials is .*; expected a list of objects with metrics"),
    ({"tasks": [1]}, r"tasks is \[1\]; expected an object with an object for each task"),
    ({"tasks": {"a": {"labels": 5}}}, "tasks.a.labels is 5; expected a list"),
    ([], r"task.json: holds \[\]; expected an object"),
    ('{"task": 1', r"damaged \(line 1"),
    ("[" * 100_000, "damaged .line 1: nested too deeply"),
    (b"\xff", "damaged .not UTF-8"),
])  # fmt: skip
def test_an_entry_of_another_type_is_refused_by_its_name(tmp_path: Path, changes: Any, said: str) -> None:
    path = tmp_path / "cloze" / "task.json"
    path.parent.mkdir()
    (tmp_path / "config.json").write_text("{}")
    if not isinstance(changes, bytes):
        changes = (changes if isinstance(changes, str) else json.dumps({**RIGHT, **changes} if changes else changes)).encode()
    path.write_bytes(changes)
    with pytest.raises(CheckpointError, match=said):
        read_task_json(tmp_path)


@pytest.mark.parametrize("name", ["task", "columns", "head"])
def test_a_task_that_says_nothing_of_what_all_tasks_have_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "cloze").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "cloze" / "task.json").write_text(json.dumps(RIGHT))
    assert read_task_json(tmp_path) == RIGHT and task_in_folder(tmp_path).name == "sentence_classification"
    (tmp_path / "cloze" / "task.json").write_text(json.dumps({key: value for key, value in RIGHT.items() if key != name}))
    with pytest.raises(CheckpointError, match=f"task.json: says nothing of {name}. Copy the file again"):
        task_in_folder(tmp_path)
