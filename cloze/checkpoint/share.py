"""Makes a folder to publish from a run or a fine-tuned folder: the model, its tokenizer, its recipe and a card, without any text.

A run folder also holds the training text as ids, samples of it in the log, and the optimizer's state; none of these is copied.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.atomic import require_new, whole_folder
from cloze.checkpoint.borrowed import NETWORKS, network_folder
from cloze.checkpoint.open_folder import open_folder
from cloze.document import read_plain
from cloze.errors import CheckpointError, UserError
from cloze.hub import name_of
from cloze.interop import Card, Imported, PortableModel, export_folder, import_folder
from cloze.interop.card_results import add_results
from cloze.interop.files import read_json, write_json
from cloze.recipe.changes import read_by
from cloze.recipe.towers import towers_in
from cloze.recipe.user_files import FOLDER, copies_in, naming_files
from cloze.tasks.tuned_folder import TASK_FILE, copy_task, length_of_tuned, read_task_entries, read_task_json, row_length
from cloze.untrusted import parse_json

_KEPT = ("recipe.yaml", "task.json")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")


def share(
    source: Path, out: Path, *, languages: Sequence[str] = (), licence: str | None = None, data: str | None = None,
    task: str | None = None,
) -> list[str]:
    """Write the model of `source` to the new folder `out`; returns what transformers cannot express, in plain words.

    `languages` are codes such as `en`, `licence` is a name from the Hub such as `mit`, `data` is a sentence on the text. The card
    contains these and what is known about the model. `task` selects one of several tasks of `source`: only its head is written,
    so that transformers opens the folder as a model of that task. Errors: `CheckpointError` if `source` holds no model or `out`
    holds something already, `TaskError` for an unknown task, `UserError` for a code or a name that the Hub would refuse. `out`
    appears whole or not at all.
    """
    require_new(out)
    _check(languages, licence)
    with naming_files(source):
        imported = open_folder(source)
    description = None if task is None else read_task_entries(source, task)
    if description is not None:
        head_names = {description["head"], *(tower["head"] for tower in _towers(description) if tower["network"] is None)}
        heads = {name: imported.model.heads[name] for name in imported.model.heads if name in head_names}
        imported = replace(imported, model=replace(imported.model, heads=heads), labels=tuple(description.get("labels") or ()))
    card = card_of(source, imported, languages=languages, licence=licence, data=data, folder=out.name, task=task)
    results = card.task or {}
    return write_copy(
        source, out, replace(imported, model=imported.model.plain), card if card.task is None else replace(card, results=""),
        description=description, finish=lambda stage: add_results(stage / "README.md", results),
    )


def write_copy(
    source: Path, out: Path, imported: Imported, card: Card, *, description: Mapping[str, Any] | None = None,
    finish: Callable[[Path], None] = lambda stage: None,
) -> list[str]:
    """Write the model `imported`, read from `source` and perhaps changed, to the new folder `out`; returns remarks.

    Recipe, task and the user's code are copied from `source`; `description` replaces the contents of task.json. `finish` is
    called with the complete folder before it appears as `out`; if it raises, `out` does not appear.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    copies = copies_in(source)
    with whole_folder(out, new=True) as stage:
        remarks = export_folder(
            stage, model=imported.model, tokenizer=imported.tokenizer, reading=imported.reading, card=card,
            architecture=imported.architecture, labels=imported.labels or None,
            length=length_of_tuned(source) if description is None else row_length(description),
        )  # fmt: skip
        _write_others(source, stage, description, imported.model, card)
        copy_task(source, stage)
        if description is not None:
            write_json(stage / "cloze" / "task.json", description)
        for copy in copies:
            (stage / FOLDER).mkdir(exist_ok=True)
            shutil.copyfile(copy, stage / FOLDER / copy.name)
        finish(stage)
    code = [f"{FOLDER / copy.name} is your Python file, without which the model does not open: publish it only if you want to."
            for copy in copies]
    return [*imported.remarks, *remarks, *code]


def require_merged(source: Path) -> None:
    """A `CheckpointError` if a folder's network has no change that can be merged into its weights."""
    model = open_folder(source).model
    if not model.changes:
        raise CheckpointError(f"{source}: its network has no change to merge. Export it as it is: --to huggingface.")
    if model.no_plain_form:
        ways = "--to huggingface" if read_by(model) else "--to change, or --to huggingface"
        raise CheckpointError(f"{source}: {model.no_plain_form}\n  For cloze: {ways}.")


def _write_others(
    source: Path, stage: Path, description: Mapping[str, Any] | None, model: PortableModel, card: Card
) -> None:
    """Write the further networks that the tasks of a folder need, those whose states the model reads, and the other tower of a
    run that compared two, each with its heads."""
    if description is None:
        recipe = source / "cloze" / "recipe.yaml"
        towers = towers_in(read_plain(recipe)) if recipe.is_file() else {}
        description = read_task_json(source) if (source / TASK_FILE).is_file() else {"towers": towers}
    described = [description, *description.get("tasks", {}).values()]
    needed = {tower["network"] for task_description in described for tower in _towers(task_description)} - {None} | read_by(model)
    for name in sorted(needed):
        other = import_folder(network_folder(source, name))
        export_folder(
            stage / NETWORKS / name, model=other.model.plain, tokenizer=other.tokenizer, reading=other.reading,
            card=replace(card, name=f"{card.name}, {name}", results="", folder=name), architecture=other.architecture,
        )


def _towers(description: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The networks and heads of a task that compares vectors of two networks or heads."""
    return list(description.get("towers", {}).values())


def _check(languages: Sequence[str], licence: str | None) -> None:
    for code in languages:
        if not _LANGUAGE.fullmatch(code):
            raise UserError(f"--language {code!r}: expected ISO 639 codes such as en, fr or zh, separated by commas.")
    if licence is not None and not _LICENCE.fullmatch(licence):
        raise UserError(f"--licence {licence!r}: expected a licence of the Hub, such as mit, apache-2.0 or cc-by-4.0.")


def card_of(
    source: Path, imported: Imported, *, languages: Sequence[str], licence: str | None, data: str | None, folder: str,
    task: str | None = None,
) -> Card:
    """The card: name, paper and notes of the recipe, the size of the text, the last losses or the task's figures."""
    from cloze.recipe.load import load_recipe

    name, paper, notes = source.resolve().name, None, ""
    if (source / "cloze" / "recipe.yaml").is_file():
        recipe = load_recipe(source)
        name, paper, notes = recipe.name, recipe.paper, recipe.notes or ""
    return Card(
        name=name, step=imported.step, paper=paper, notes=notes, data=_data(source, data), results=_results(source, task),
        task=_task_contents(source, task), base=_hub_base(source),
        languages=tuple(languages), licence=licence, folder=folder,
        settings=f"cloze/{next((name for name in _KEPT if (source / 'cloze' / name).is_file()), _KEPT[0])}",
    )  # fmt: skip


def _hub_base(source: Path) -> str | None:
    """The model of the hub that a run started from; None if it started otherwise."""
    path = source / "cloze" / "run.json"
    inputs = read_json(path, "the run").get("inputs", {}) if path.is_file() else {}
    origins = [inputs.get("init"), *inputs.get("networks", {}).values()]
    names = [name_of(Path(origin["given"])) for origin in origins if origin]
    return next((name for name in names if name is not None), None)


def _task_contents(source: Path, task: str | None) -> dict[str, Any] | None:
    """The contents of task.json, of one task or of all; None without the file."""
    if not (source / TASK_FILE).is_file():
        return None
    return read_task_json(source) if task is None else read_task_entries(source, task)


def _data(source: Path, data: str | None) -> str:
    """What it was trained on: the user's description and the size of the text."""
    path = source / "cloze" / "environment.json"
    corpora = read_json(path, "the environment of the run").get("corpus", {}) if path.is_file() else {}
    if not isinstance(corpora, dict) or not all(map(_has_sizes, corpora.values())):
        raise CheckpointError(f"{path}: corpus is not what cloze writes there. Copy the file again.")
    sizes = [
        f"{facts['documents']:,} documents with {facts['tokens']:,} tokens{f' ({name})' if len(corpora) > 1 else ''}"
        for name, facts in corpora.items()
    ]
    lead = "" if data is None else data.strip().rstrip(".") + ". "
    return f"Text: {lead}{' and '.join(sizes)}".rstrip() + ("." if sizes else "") if data or sizes else ""


def _has_sizes(facts: Any) -> bool:
    return isinstance(facts, dict) and all(isinstance(facts.get(key), int) for key in ("documents", "tokens"))


def _results(source: Path, task: str | None) -> str:
    """The last held-out losses of a run, else its last training loss; for a fine-tuned folder, the dev metrics of `task` or of
    all tasks."""
    described = _task_contents(source, task)
    if described is not None:
        task_names = [f"{name} ({facts['task']})" for name, facts in described.get("tasks", {}).items()]
        return (
            f"Fine-tuned for {' and '.join(task_names) or described.get('task')}; on the dev examples: "
            f"{_figures(described.get('dev') or {})}."
        )
    log = source / "cloze" / "log.jsonl"
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    records = [record for line in lines if (record := _record(line))]
    for event, words in (("held_out", "Loss on held-out text"), ("train", "Loss in training")):
        last = [record for record in records if record.get("event") == event and "loss" in record]
        if last:
            parts = last[-1].get("objectives") or {}
            details = f" ({_figures(parts)})" if len(parts) > 1 else ""
            return f"{words} after {last[-1]['step']:,} steps: {last[-1]['loss']:.4f}{details}, in nats."
    return ""


def _record(line: str) -> dict[str, Any]:
    """One line of the log with a step and finite losses; {} for any other, such as a truncated last line."""
    try:
        record = parse_json(line)
        losses = [record["loss"], *(record.get("objectives") or {}).values()]
        sound = all(isinstance(loss, (int, float)) and math.isfinite(loss) for loss in losses) and 0 <= record["step"] < 1 << 53
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return {}
    return record if sound else {}


def _figures(numbers: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in numbers.items() if isinstance(value, int | float))
