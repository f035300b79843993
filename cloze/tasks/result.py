"""What was fine-tuned as a folder: a Hugging Face folder that has a `cloze/task.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.decoding.reader import Checkpoint
from cloze.errors import CheckpointError, TaskError, nearest
from cloze.registry import lookup, names, parameters
from cloze.tasks.task import Learner, Task
from cloze.tasks.task import task as make_task
from cloze.untrusted import parse_json, read_small
from cloze.whole import recover

TASK_FILE = "cloze/task.json"
LOG_FILE = "cloze/log.jsonl"


def check_new(folder: Path, *, overwrite: bool) -> None:
    """A `TaskError` if a result cannot be written to a folder; check it before the work begins.

    `overwrite` replaces what fine-tuning wrote and nothing else: never a run, with its checkpoints, or some other folder.
    """
    recover(folder)
    holds = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if holds and not overwrite:
        raise TaskError(f"{folder}: already exists and is not empty. Choose another --out, or replace it with --overwrite.")
    if holds and not (folder / TASK_FILE).is_file():
        raise TaskError(
            f"{folder}: already exists, and cloze finetune did not write it; --overwrite does not delete it.\n"
            "  Choose another --out, or remove it yourself."
        )
    place = next(parent for parent in folder.absolute().parents if parent.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise TaskError(f"{folder}: you cannot write to {place}. Choose another --out.")


def is_tuned(folder: Path) -> bool:
    """Whether a path is a fine-tuned folder."""
    return (folder / TASK_FILE).is_file() or (folder / "config.json").is_file()


def read_task(folder: Path, name: str | None = None) -> dict[str, Any]:
    """The contents of task.json, or what a transformers folder says of its labels; neither is a `CheckpointError`.

    `name` is one of several tasks that the folder has learned; what all of them share is in each.
    """
    found = contents_of(folder)
    tasks = found.pop("tasks", {})
    if tasks and name is None:
        raise TaskError(f"{folder}: has learned several tasks. Name one with --task: {', '.join(tasks)}.")
    if name is not None and name not in tasks:
        way_out = nearest(name, tasks) if tasks else "It has learned one task. Leave --task out."
        raise TaskError(f"{folder}: there is no task {name!r}. {way_out}")
    return found if name is None else {**_measured(found, name), **tasks[name]}


def _measured(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What several tasks share in a task.json, with the metrics of one of them, which stand under its name, in place of all."""
    def own(metrics: Mapping[str, Any]) -> dict[str, Any]:
        return {key.removeprefix(f"{name}/"): value for key, value in metrics.items() if key.startswith(f"{name}/")}

    made = {key: own(found[key]) for key in ("dev", "spread") if key in found}
    trials = [{**trial, "metrics": own(trial["metrics"])} for trial in found.get("trials", ())]
    return {**found, **made, **({"trials": trials} if trials else {})}


def contents_of(folder: Path) -> dict[str, Any]:
    """What `read_task` reads, with all of its `tasks` where there are several."""
    path = folder / TASK_FILE
    if path.exists():
        try:
            found: dict[str, Any] = parse_json(read_small(path))
        except json.JSONDecodeError as error:
            raise CheckpointError(f"{path}: damaged (line {error.lineno}: {error.msg}). Fine-tune again.") from None
        return found
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if (folder / "config.json").exists() else {}
    classes = config.get("architectures") or ()
    tagger = any(name.endswith("ForTokenClassification") for name in classes)
    chooser = any(name.endswith("ForMultipleChoice") for name in classes)
    if not (tagger or chooser) and not any(name.endswith("ForSequenceClassification") for name in classes):
        raise CheckpointError(
            f"{folder}: not fine-tuned: it has no {TASK_FILE}.\n"
            f"  Make one with: cloze finetune {folder} --task {'|'.join(names('task'))} --train FILE --dev FILE --out DIR"
        )
    named = config.get("id2label") or {}
    labels = [named[key] for key in sorted(named, key=int)]
    told: dict[str, Any] = {"task": None, "columns": {}, "labels": labels, "head": None, "length": None}
    if chooser:
        return {**told, "task": "multiple_choice", "labels": None}
    return {**told, "task": "token_labelling", "usual": "O" if "O" in labels else labels[0]} if tagger else told


def task_of(folder: Path, task: str | None = None, **given: Any) -> Task:
    """The task of a fine-tuned folder, read without opening the network; columns that are given replace its own. `task` is the
    name of one of several.

    A sequence-classification folder that transformers wrote does not say which of the two tasks it is: a second column does.
    """
    described = read_task(folder, task)
    name = described["task"] or ("pair_classification" if given.get("text_b") else "sentence_classification")
    if name not in names("task"):
        raise CheckpointError(f"{folder / TASK_FILE}: the task {name!r} is not one that this cloze knows. Use a newer cloze.")
    known = {**described, **described["columns"]}  # options that name no column are kept outside of `columns`
    options = {key: known[key] for key in parameters(lookup("task", name)) if known.get(key) is not None}
    return make_task(name, **{**options, **{key: value for key, value in given.items() if value is not None}})


def load_tuned(
    loaded: Checkpoint, task: Task | None = None, *, precision: Any = None, name: str | None = None
) -> tuple[Learner, dict[str, Any]]:
    """What learned the task of a fine-tuned checkpoint, and the contents of its task.json; `task` None: as it says. `name` is
    that of one of several tasks."""
    folder = Path(loaded.folder)
    described = read_task(folder, name)
    learner = (task or task_of(folder, name)).load(loaded, described, precision)
    return learner.eval(), described
