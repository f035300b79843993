"""The folder of a fine-tuned model: a Hugging Face folder with `cloze/task.json`, which records task, columns, labels and head.

`read_task_json` reads that file, `read_task_entries` what it says of one task. `task_in_folder` makes the `Task` of it, without
opening the network. `load_tuned` combines it with an opened checkpoint into a `Learner`,
which predicts. For a folder that transformers or peft wrote, config.json says what its head is for (`cloze/interop/purpose.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from cloze.corpus.readers.labelled import Trained
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, propose
from cloze.interop.config import has_config
from cloze.interop.onnx_folder import folder_of, head_in, is_onnx, unpacked
from cloze.interop.purpose import task_of_config, unread_head
from cloze.missing import require_checkpoint
from cloze.registry import lookup, names, parameters
from cloze.tasks.linear.model import SETTINGS, TENSORS, load_linear
from cloze.tasks.mixture import ENTRY, Mixture
from cloze.tasks.task import Learner, Task
from cloze.tasks.task import task as make_task
from cloze.tasks.task_json import fault_of
from cloze.untrusted import parse_json, read_small

TASK_FILE = "cloze/task.json"
LOG_FILE = "cloze/log.jsonl"
FILES = "files"  # in task.json: how the files of training were written, where their names and headers do not tell it
LEARNED_DEV = "learned_dev"  # in task.json: whether what answers has learned from the dev rows of the run, too


def copy_task(source: Path, target: Path) -> None:
    """Copy what a folder knows of its task into the folder `cloze` of another: recipe, task.json and linear models on n-grams."""
    names = ("recipe.yaml", "task.json", f"*{SETTINGS}", f"*{TENSORS}")
    for path in (path for name in names for path in (source / "cloze").glob(name)):
        shutil.copyfile(path, target / "cloze" / path.name)


def is_model_folder(folder: Path) -> bool:
    """Whether a path is the folder of a model, fine-tuned or not, or an ONNX file."""
    return (folder / TASK_FILE).is_file() or has_config(folder) or is_onnx(folder)


def read_task_entries(folder: Path, name: str | None = None) -> dict[str, Any]:
    """The entries of task.json about one task, with those that all tasks share; `name` selects one of several."""
    contents = read_task_json(folder)
    tasks = contents.pop("tasks", {})
    if tasks and name is None:
        raise TaskError(f"{folder}: was fine-tuned for several tasks. Choose one with --task: {', '.join(tasks)}.")
    if name is not None and name not in tasks:
        task_name = contents.get("task") or "classification"
        way_out = propose(name, tasks) if tasks else f"It was fine-tuned for one task, {task_name}. Omit --task."
        raise TaskError(f"{folder}: there is no task {name!r}. {way_out}")
    return contents if name is None else {**_with_metrics_of(contents, name), **tasks[name]}


def _with_metrics_of(task_json: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entries of task.json that several tasks share, with only the metrics of the task `name`, whose keys begin with it."""
    def own(metrics: Mapping[str, Any]) -> dict[str, Any]:
        return {key.removeprefix(f"{name}/"): value for key, value in metrics.items() if key.startswith(f"{name}/")}

    sections = {key: own(task_json[key]) for key in ("dev", "spread") if key in task_json}
    trials = [{**trial, "metrics": own(trial["metrics"])} for trial in task_json.get("trials", ())]
    return {**task_json, **sections, **({"trials": trials} if trials else {})}


#: Files that a folder with a model has, at least one of them.
_OF_MODEL = ("config.json", "cloze/network.json", "cloze/checkpoints")


def read_task_json(folder: Path) -> dict[str, Any]:
    """The contents of task.json, or its equivalent from the config.json of transformers; a `CheckpointError` without either."""
    require_checkpoint(folder)
    with unpacked(folder) as unpacked_folder:
        description = find_task_json(unpacked_folder)
    if is_onnx(folder):
        _require_answers(folder, description)
    if description is not None:
        return description
    if _kind_of_network(folder) == "graph_vectors":
        raise CheckpointError(
            f"{folder}: not fine-tuned: it holds the vectors of a knowledge graph.\n"
            f"  To rank entities: cloze evaluate {folder} TEST.tsv --task link_prediction"
        )
    if folder.is_file():
        raise CheckpointError(
            f"{folder}: not fine-tuned: it is a file, not the folder of a model.\n"
            f"  If it is a classifier of fastText: cloze import {folder} --out FOLDER, then use that folder."
        )
    if folder.is_dir() and (folder / "cloze").is_dir() and not any((folder / name).exists() for name in _OF_MODEL):
        raise CheckpointError(
            f"{folder}: the run in this folder has no checkpoint yet.\n"
            "  Rerun the command that started it; it resumes where it stopped."
        )
    vectors = f"  To measure its word vectors: cloze evaluate {folder} --similarity FILE\n"
    raise CheckpointError(
        f"{folder}: not fine-tuned: {unread_head(folder) or f'it has no {TASK_FILE}'}.\n"
        f"{vectors if _kind_of_network(folder) == 'word_vectors' else ''}"
        f"  Fine-tune it: cloze finetune {folder} --task TASK --train FILE --dev FILE --out DIR, where TASK is "
        f"{', '.join(names('task')[:-1])} or {names('task')[-1]}."
    )


def _require_answers(file: Path, description: Mapping[str, Any] | None) -> None:
    """Raise a `CheckpointError` if an ONNX file does not hold the head of a task."""
    if description is None:
        raise CheckpointError(
            f"{file}: not fine-tuned, and an ONNX file cannot be.\n  Fine-tune the folder that it was exported from, and export "
            "the result: cloze export DIR FILE.onnx --to onnx"
        )
    if head_in(file) is None:
        raise CheckpointError(
            f"{file}: holds a network without the head of its task, {description.get('task')}, which ONNX files cannot hold.\n"
            "  Use the folder that it was exported from."
        )


def has_own_task(folder: Path) -> bool:
    """Whether cloze wrote what a checkpoint was fine-tuned for into its folder, or into its ONNX file."""
    return (folder_of(folder) / TASK_FILE).is_file()


def find_task_json(folder: Path) -> dict[str, Any] | None:
    """As `read_task_json`, of a folder; None if there is no task."""
    path = folder / TASK_FILE
    if not path.exists():
        return task_of_config(folder) if has_config(folder) else None
    try:
        description: dict[str, Any] = parse_json(read_small(path))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: damaged (line {error.lineno}: {error.msg}). Fine-tune again.") from None
    except UnicodeDecodeError:
        raise CheckpointError(f"{path}: damaged (not UTF-8). Fine-tune again.") from None
    if fault := fault_of(description):
        raise CheckpointError(f"{path}: {fault}. Copy the file again.")
    return description


def row_length(task_json: Mapping[str, Any]) -> int | None:
    """The most tokens of a row that the tasks of a task.json read; None: as many as the network can."""
    lengths = [task.get("length") for task in (task_json.get("tasks") or {"": task_json}).values()]
    return None if None in lengths else max(lengths, default=None)


def length_of_tuned(folder: Path) -> int | None:
    """`row_length` of a fine-tuned folder; None for any other folder, too."""
    try:
        return row_length(read_task_json(folder))
    except CheckpointError:
        return None


def _kind_of_network(folder: Path) -> str | None:
    """The kind of network that cloze wrote into a folder; None if it is not one of cloze's."""
    path = folder / "cloze" / "network.json"
    try:
        return parse_json(read_small(path)).get("part") if path.exists() else None
    except (ValueError, AttributeError):
        return None


def task_in_folder(folder: Path, name: str | None = None, **replacements: Any) -> Task:
    """The task of a fine-tuned folder, read without opening the network; `replacements` are options that replace its own.
    `name` selects one of several.

    A sequence-classification folder that transformers wrote may classify single texts or pairs: pairs if `text_b` is given.
    """
    task_json = read_task_entries(folder, name)
    if missing := [name for name in ("task", "columns", "head") if name not in task_json]:
        raise CheckpointError(f"{folder / TASK_FILE}: says nothing of {missing[0]}. Copy the file again.")
    kind = task_json["task"] or ("pair_classification" if replacements.get("text_b") else "sentence_classification")
    if kind not in names("task"):
        raise CheckpointError(f"{folder / TASK_FILE}: the task {kind!r} is not one that this cloze knows. Use a newer cloze.")
    settings = {**task_json, **task_json["columns"]}  # options other than columns are outside of `columns`
    options = {key: settings[key] for key in parameters(lookup("task", kind)) if settings.get(key) is not None}
    definition = make_task(kind, **{**options, **{key: value for key, value in replacements.items() if value is not None}})
    if not is_dataclass(definition) or "trained" not in {field.name for field in fields(definition)}:
        return definition
    files = {**(task_json.get(FILES) or {})}
    columns, labels = tuple(files.pop("columns", ())), frozenset(map(str, task_json.get("labels") or ()))
    return replace(definition, trained=Trained(columns or None, labels=labels, **files))


def head_name(loaded: Checkpoint, task_json: Mapping[str, Any]) -> str | None:
    """The name of the head for a task; None if it is to be found by its part, in a folder without task.json whose heads have the
    names that a recipe gave them."""
    name: str | None = task_json["head"]
    return name if name in loaded.heads or has_own_task(Path(loaded.folder)) else None


def load_tuned(
    loaded: Checkpoint, task: Task | None = None, *, name: str | None = None, length: int | None = None,
) -> tuple[Learner, dict[str, Any]]:
    """The `Learner` of a fine-tuned checkpoint, and the contents of its task.json. `task` defaults to the one recorded there;
    `name` selects one of several. `length` is how many tokens of a row are read, None as many as in training. Raises a
    `TaskError` if the network reads fewer, or if none would be left for a text."""
    folder = Path(loaded.folder)
    task_json = read_task_entries(folder, name)
    task_json["head"] = head_name(loaded, task_json)
    if length is not None:
        _require_length(loaded, length)
        task_json = {**task_json, "length": length}
    learner = (task or task_in_folder(folder, name)).load(loaded, task_json)
    learner.saved_in, learner.annotated = (folder, name or ""), tuple(task_json.get("annotated") or ())
    if (record := task_json.get(ENTRY)) is not None:
        linear = load_linear(folder / "cloze", learner.task, name or "", labels=learner.labels or ())
        learner.mixture = Mixture.read(record, linear, folder)
    return learner.eval(), task_json


def _require_length(loaded: Checkpoint, length: int) -> None:
    """Raise a `TaskError` if a checkpoint does not read rows of so many tokens."""
    reader = Reader.of(loaded)
    most, frame = reader.max_length, (reader.pair_layout if reader.reading.pair else reader.single_layout).added
    if most is not None and length > most:
        raise TaskError(f"length {length}: {loaded.folder} reads at most {most} tokens of a row. Give a length up to {most}.")
    if length <= frame:
        raise TaskError(f"length {length}: leaves no room for text, because the template takes {frame} tokens. Give more.")
