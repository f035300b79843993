"""A fine-tuned classifier as a folder: a Hugging Face folder with `cloze/task.json` beside it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError
from cloze.interop.card import Card
from cloze.interop.export import export_folder
from cloze.interop.model import Head as StoredHead
from cloze.interop.model import Model
from cloze.registry import lookup, names
from cloze.tasks.classification import Classification
from cloze.tasks.classifier import Classifier, Head
from cloze.tasks.finetune import Result
from cloze.tasks.metrics import spread

TASK_FILE = "cloze/task.json"
LOG_FILE = "cloze/log.jsonl"
HEAD = "classification"


def save_result(
    folder: Path, result: Result, loaded: Checkpoint, *, facts: Mapping[str, Any], overwrite: bool = False
) -> list[str]:
    """Write the best classifier; returns what transformers cannot express, in plain words.

    `facts` (numbers of examples, baseline, …) go into task.json as they are. The folder appears whole or not at all; one
    that is there already is a `TaskError` unless `overwrite`.
    """
    classifier = result.classifier
    with published(folder, overwrite=overwrite) as stage:
        remarks = export_folder(
            stage,
            model=_model(classifier, loaded),
            tokenizer=classifier.reader.tokenizer,
            reading=classifier.reader.reading,
            card=_card(result, loaded),
            labels=classifier.labels,
        )
        _write(stage / TASK_FILE, json.dumps(_description(result, facts), indent=2, ensure_ascii=False) + "\n")
        _write(stage / LOG_FILE, "".join(json.dumps(record) + "\n" for record in result.log))
    return remarks


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _model(classifier: Classifier, loaded: Checkpoint) -> Model:
    network = classifier.reader.network
    part = next((name for name in names("network") if lookup("network", name) is type(network)), type(network).__name__)
    head = StoredHead(classifier.made.part, classifier.made.arguments, classifier.head.state_dict())
    return Model(
        arguments=dict(loaded.network_arguments),
        order=classifier.reader.order,
        network=network.state_dict(),
        heads={HEAD: head},
        part=part,
    )


def _card(result: Result, loaded: Checkpoint) -> Card:
    best, task = result.best, result.classifier.task
    start = "a random start" if result.settings.from_scratch else Path(loaded.folder).name
    figures = ", ".join(f"{name} {value:.4f}" for name, value in best.metrics.items())
    return Card(
        name=f"{Path(loaded.folder).name}-{task.name}",
        notes=f"A classifier for {task.name}, fine-tuned from {start} with seed {best.seed}. Dev: {figures}.",
    )


def _description(result: Result, facts: Mapping[str, Any]) -> dict[str, Any]:
    classifier, task = result.classifier, result.classifier.task
    return {
        "version": 1,
        "task": task.name,
        "columns": {"text": task.text, "text_b": task.text_b, "label": task.label},
        "labels": list(classifier.labels),
        "length": classifier.length,
        "head": HEAD,
        "settings": asdict(result.settings),
        "seed": result.best.seed,
        "epoch": result.best.epoch,
        "dev": result.best.metrics,
        "trials": [asdict(trial) for trial in result.trials],
        "spread": spread([trial.metrics for trial in result.trials]),
        **facts,
    }


def check_new(folder: Path, *, overwrite: bool) -> None:
    """A `TaskError` if something stands where a result is to be written; to be asked before the work begins."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not overwrite:
        raise TaskError(f"{folder}: there is something already. Choose another --out, or give --overwrite to replace it.")


@contextmanager
def published(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A place to write in that becomes `folder` by renaming when the block ends without an error."""
    check_new(folder, overwrite=overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        stage.chmod(0o755)
        yield stage
        old = stage.with_name(stage.name + ".old")
        if folder.exists():
            os.replace(folder, old)
        os.replace(stage, folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def read_task(folder: Path) -> dict[str, Any]:
    """The contents of task.json, or what a transformers folder says of its labels; neither is a `CheckpointError`."""
    path = folder / TASK_FILE
    if path.exists():
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise CheckpointError(f"{path}: damaged (line {error.lineno}: {error.msg}). Fine-tune again.") from None
        return found
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if (folder / "config.json").exists() else {}
    if not any(name.endswith("ForSequenceClassification") for name in config.get("architectures") or ()):
        raise CheckpointError(
            f"{folder}: not a fine-tuned classifier: it has no {TASK_FILE}.\n"
            f"  Make one with: cloze finetune {folder} --task sentence_classification --train FILE --dev FILE --out DIR"
        )
    named = config.get("id2label") or {}
    return {"labels": [named[key] for key in sorted(named, key=int)], "head": None, "length": None}


def task_of(
    folder: Path, *, text: str | None = None, text_b: str | None = None, label: str | None = None
) -> Classification:
    """The task of a fine-tuned folder, read without opening the network; columns that are given replace its own."""
    columns = read_task(folder).get("columns") or {"text": "text", "text_b": None, "label": "label"}
    given = {"text": text, "text_b": text_b, "label": label}
    columns = {**columns, **{name: value for name, value in given.items() if value is not None}}
    name = "pair_classification" if columns["text_b"] is not None else "sentence_classification"
    return Classification(name, **columns)


def load_classifier(loaded: Checkpoint, *, precision: Any = None) -> tuple[Classifier, dict[str, Any]]:
    """The classifier of a fine-tuned checkpoint, and the contents of its task.json.

    A sequence-classification folder that transformers wrote works too; its columns are the task's defaults.
    """
    folder = Path(loaded.folder)
    described = read_task(folder)
    summaries = [name for name, head in loaded.heads.items() if tuple(head.reads) == ("summary",)]
    name = str(described["head"] or (summaries or ["relation_prediction"])[0])
    if name not in loaded.heads:
        raise CheckpointError(f"{folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
    reader = Reader.of(loaded, precision=precision)
    head = Head(loaded.heads[name], "", {})
    classifier = Classifier(reader, head, described["labels"], task_of(folder), length=described.get("length"))
    return classifier.eval(), described
