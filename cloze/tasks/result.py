"""The folder of a fine-tuned model: a Hugging Face folder with `cloze/task.json`, which records task, columns, labels and head.

`task_of` reads the task without opening the network. `load_tuned` combines it with an opened checkpoint into a `Learner`, which
predicts. A classifier that transformers wrote has no task.json; config.json then serves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, nearest
from cloze.missing import require_checkpoint
from cloze.registry import lookup, names, parameters
from cloze.tasks.task import Learner, Task
from cloze.tasks.task import task as make_task
from cloze.untrusted import parse_json, read_small
from cloze.whole import recover

TASK_FILE = "cloze/task.json"
LOG_FILE = "cloze/log.jsonl"


def check_new(folder: Path, *, overwrite: bool) -> None:
    """A `TaskError` if a result cannot be written to a folder; check it before the work begins.

    `overwrite` replaces only a result of fine-tuning, never a run with its checkpoints or any other folder.
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
    """The contents of task.json, or its equivalent from the config.json of transformers; a `CheckpointError` without either.

    `name` selects one of several tasks; entries that all tasks share are included.
    """
    found = contents_of(folder)
    tasks = found.pop("tasks", {})
    if tasks and name is None:
        raise TaskError(f"{folder}: was fine-tuned for several tasks. Choose one with --task: {', '.join(tasks)}.")
    if name is not None and name not in tasks:
        one = found.get("task") or "classification"
        way_out = nearest(name, tasks) if tasks else f"It was fine-tuned for one task, {one}. Omit --task."
        raise TaskError(f"{folder}: there is no task {name!r}. {way_out}")
    return found if name is None else {**_measured(found, name), **tasks[name]}


def _measured(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entries of task.json that several tasks share, with only the metrics of the task `name`, whose keys begin with it."""
    def own(metrics: Mapping[str, Any]) -> dict[str, Any]:
        return {key.removeprefix(f"{name}/"): value for key, value in metrics.items() if key.startswith(f"{name}/")}

    made = {key: own(found[key]) for key in ("dev", "spread") if key in found}
    trials = [{**trial, "metrics": own(trial["metrics"])} for trial in found.get("trials", ())]
    return {**found, **made, **({"trials": trials} if trials else {})}


def contents_of(folder: Path) -> dict[str, Any]:
    """Like `read_task`, but with all `tasks` if there are several."""
    path = folder / TASK_FILE
    require_checkpoint(folder)
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
        if _network_of(folder) == "graph_vectors":
            raise CheckpointError(
                f"{folder}: not fine-tuned: it holds the vectors of a knowledge graph.\n"
                f"  To rank entities: cloze evaluate {folder} TEST.tsv --task link_prediction"
            )
        vectors = f"  To measure its word vectors: cloze evaluate {folder} --similarity FILE\n"
        raise CheckpointError(
            f"{folder}: not fine-tuned: it has no {TASK_FILE}.\n{vectors if _network_of(folder) == 'word_vectors' else ''}"
            f"  Fine-tune it: cloze finetune {folder} --task TASK --train FILE --dev FILE --out DIR, where TASK is "
            f"{', '.join(names('task')[:-1])} or {names('task')[-1]}."
        )
    named = config.get("id2label") or {}
    labels = [named[key] for key in sorted(named, key=int)]
    found = {"task": None, "columns": {}, "labels": labels, "head": None, "length": None}
    if chooser:
        return {**found, "task": "multiple_choice", "labels": None}
    return {**found, "task": "token_labelling", "usual": "O" if "O" in labels else labels[0]} if tagger else found


def row_length(described: Mapping[str, Any]) -> int | None:
    """The most tokens of a row that the tasks of a task.json read; None: as many as the network can."""
    lengths = [one.get("length") for one in (described.get("tasks") or {"": described}).values()]
    return None if None in lengths else max(lengths, default=None)


def length_of_tuned(folder: Path) -> int | None:
    """`row_length` of a fine-tuned folder; None for any other folder, too."""
    try:
        return row_length(contents_of(folder))
    except CheckpointError:
        return None


def _network_of(folder: Path) -> str | None:
    """The kind of network that cloze wrote into a folder; None if it is not one of cloze's."""
    path = folder / "cloze" / "network.json"
    try:
        return parse_json(read_small(path)).get("part") if path.exists() else None
    except (ValueError, AttributeError):
        return None


def task_of(folder: Path, task: str | None = None, **given: Any) -> Task:
    """The task of a fine-tuned folder, read without opening the network; `given` options replace its own. `task` names one of
    several.

    A sequence-classification folder that transformers wrote may classify single texts or pairs: pairs if `text_b` is given.
    """
    described = read_task(folder, task)
    name = described["task"] or ("pair_classification" if given.get("text_b") else "sentence_classification")
    if name not in names("task"):
        raise CheckpointError(f"{folder / TASK_FILE}: the task {name!r} is not one that this cloze knows. Use a newer cloze.")
    known = {**described, **described["columns"]}  # options other than columns are outside of `columns`
    options = {key: known[key] for key in parameters(lookup("task", name)) if known.get(key) is not None}
    return make_task(name, **{**options, **{key: value for key, value in given.items() if value is not None}})


def load_tuned(
    loaded: Checkpoint, task: Task | None = None, *, precision: Any = None, name: str | None = None, length: int | None = None,
) -> tuple[Learner, dict[str, Any]]:
    """The `Learner` of a fine-tuned checkpoint, and the contents of its task.json. `task` defaults to the one recorded there;
    `name` selects one of several. `length` is how many tokens of a row are read, None as many as in training; more than the
    network reads, or so few that none is of a text, are a `TaskError`."""
    folder = Path(loaded.folder)
    described = read_task(folder, name)
    if length is not None:
        _require_length(loaded, length)
        described = {**described, "length": length}
    learner = (task or task_of(folder, name)).load(loaded, described, precision)
    return learner.eval(), described


def _require_length(loaded: Checkpoint, length: int) -> None:
    """Raise a `TaskError` if a checkpoint does not read rows of so many tokens."""
    reader = Reader.of(loaded)
    most, frame = reader.max_length, (reader.pair if reader.reading.pair else reader.single).added
    if most is not None and length > most:
        raise TaskError(f"length {length}: {loaded.folder} reads at most {most} tokens of a row. Give a length up to {most}.")
    if length <= frame:
        raise TaskError(f"length {length}: leaves no room for text, because the template takes {frame} tokens. Give more.")
