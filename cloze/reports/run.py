"""The contents of a run folder: log, recipe and environment, read leniently and never changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloze.document import read_yaml
from cloze.errors import CheckpointError, RecipeError
from cloze.tasks.evaluation_text import simple_answers
from cloze.training.baselines import Baseline, baselines_from, with_measured
from cloze.untrusted import parse_json, read_small

Record = dict[str, Any]
Point = tuple[float, float]

LOG = Path("cloze") / "log.jsonl"
_TASK = Path("cloze") / "task.json"  # only a fine-tuned folder has it
_RECORD = Path("cloze") / "run.json"
_SEEDS = Path("cloze") / "seeds"
_PAGES = ("best.html", "compare.html", "sweep.html")  # of what tries many runs


@dataclass(frozen=True)
class RecordedRun:
    """One run, as its folder records it.

    `train`, `held_out`, `samples` and `dev` (what a task is measured by) hold log records in the order of their steps;
    `tables` are further results that the run recorded (`{"event": "table", "title", "columns", "rows"}`), the last of each
    title.
    """

    name: str
    folder: Path
    train: list[Record]
    held_out: list[Record]
    samples: list[Record]
    tables: list[Record]
    recipe_text: str = ""
    recipe: Record = field(default_factory=dict)
    environment: Record = field(default_factory=dict)
    unreadable_lines: int = 0
    budget: str = ""
    baselines: dict[str, Baseline] = field(default_factory=dict)
    dev: list[Record] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # of a fine-tuned folder: what to know about its figures
    simple_answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # their metrics on dev, by their names

    def series(self, x: str, y: str) -> list[Point]:
        """Points of two logged numbers; `y` may be a path such as `objectives.main`. Gaps are left out."""
        return points_of(self.train, x, y)

    def held_out_series(self, x: str) -> dict[str, list[Point]]:
        """The held-out losses of every mixture entry."""
        by_entry: dict[str, list[Record]] = {}
        for record in self.held_out:
            by_entry.setdefault(str(record.get("entry")), []).append(record)
        return {entry: points_of(records, x, "loss") for entry, records in by_entry.items()}

    def worth(self) -> dict[str, tuple[float, Baseline | None]]:
        """The last held-out loss of each objective; see `worth_of`."""
        return worth_of(self.held_out, self.baselines)

    def last(self, key: str) -> float | None:
        """The last logged value of a number."""
        values = [number(record, key) for record in self.train]
        return next((value for value in reversed(values) if value is not None), None)

    @property
    def objectives(self) -> list[str]:
        """The names of the objectives, in the order in which the log first names them."""
        return self.names("objectives")

    def names(self, group: str, records: Iterable[Record] | None = None) -> list[str]:
        """The names inside a logged group such as `objectives` or `metrics`, in the order of the log."""
        names: dict[str, None] = {}
        for record in self.train if records is None else records:
            entries = record.get(group)
            names.update(dict.fromkeys(entries if isinstance(entries, dict) else ()))
        return list(names)


def read_losses(folder: Path) -> dict[str, tuple[float, Baseline | None]]:
    """The last held-out loss of each objective of a run; nothing where no run has been logged. See `worth_of`."""
    if not (folder / LOG).is_file():
        return {}
    events, _ = read_log(folder / LOG)
    held_out = in_order(record for record in events if record.get("event") == "held_out")
    return worth_of(held_out, _baselines(events)) if held_out else {}


def _baselines(events: Sequence[Record]) -> dict[str, Baseline]:
    return baselines_from(next((record["baselines"] for record in reversed(events) if record.get("baselines")), None))


def worth_of(held_out: Sequence[Record], baselines: Mapping[str, Baseline]) -> dict[str, tuple[float, Baseline | None]]:
    """The last held-out loss of each objective with its baseline, by the name that training gives it.

    In a mixture that is `entry/objective`; the events of an entry have the objectives' own names. The baseline of labels that
    training makes, such as which tokens were replaced, comes from their measured frequency.
    """
    last = [record for record in held_out if record.get("step") == held_out[-1].get("step")]  # an event of each entry
    losses: dict[str, tuple[float, Baseline | None]] = {}
    for record in last:
        entry = f"{record.get('entry')}/"
        prefix = entry if len(last) > 1 or any(name.startswith(entry) for name in baselines) else ""
        metrics = {f"{prefix}{name}": number(record, f"metrics.{name}") for name in record.get("metrics") or {}}
        measured = with_measured(baselines, {name: value for name, value in metrics.items() if value is not None})
        for name in record.get("objectives") or {}:
            loss = number(record, f"objectives.{name}")
            if loss is not None:
                losses[prefix + name] = loss, measured.get(prefix + name)
    return losses


def loss_together(records: Sequence[Record]) -> float | None:
    """The loss of the held-out events of one evaluation together: of the entries of a mixture, each with the `weight` that the
    run has given it. None if one has no loss."""
    losses = [loss for record in records if (loss := number(record, "loss")) is not None]
    if not records or len(losses) < len(records):
        return None
    weights = [number(record, "weight") for record in records]
    return sum(loss * (1 / len(losses) if weight is None else weight) for loss, weight in zip(losses, weights, strict=True))


def points_of(records: Iterable[Record], x: str, y: str) -> list[Point]:
    """Points of two logged numbers; records without both are left out."""
    pairs = ((number(record, x), number(record, y)) for record in records)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def number(record: Record, path: str) -> float | None:
    """A finite number at a dotted path of a record, or None."""
    value: Any = record
    steps = path.split(".", 1)
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        figure = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return figure if math.isfinite(figure) else None


def _is_run(folder: Path) -> bool:
    return (folder / LOG).is_file() and ((folder / _RECORD).is_file() or not (folder / _TASK).exists())


def require_no_result(path: Path) -> None:
    """A `CheckpointError` for the folder of a comparison, which has a page of its own; its runs are in folders within."""
    page = next((path / name for name in _PAGES if (path / name).is_file()), None)
    if page is not None and (path / "cells").is_dir():
        raise CheckpointError(
            f"{path}: holds the result of cloze {page.stem}. Open {page} in a browser; {path}/cells has its runs."
        )


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run folders that `paths` name: each is a run, the runs of several seeds, or a folder of runs."""
    folders: list[Path] = []
    for path in paths:
        if not path.exists():
            raise CheckpointError(
                f"{path}: no such folder.\n  cloze report takes the folders that cloze pretrain wrote."
            )
        if (path / _SEEDS).is_dir():
            folders += sorted(child for child in (path / _SEEDS).iterdir() if _is_run(child))
            continue
        if (path / _TASK).is_file() and not _is_run(path):
            raise CheckpointError(
                f"{path}: this fine-tuned folder has no log of its run.\n"
                "  Give the folder that was fine-tuned; `cloze evaluate` measures this one."
            )
        if _is_run(path):
            folders.append(path)
            continue
        inner = sorted(child for child in path.iterdir() if _is_run(child)) if path.is_dir() else []
        if not inner:
            require_no_result(path)
            raise CheckpointError(
                f"{path}: not a run folder: it has no {LOG}.\n"
                "  Give the --out folder of cloze pretrain, or a folder that holds several of them."
            )
        folders += inner
    return list(dict.fromkeys(folders))


def read_run(folder: Path, name: str | None = None) -> RecordedRun:
    """Read one run folder. A log without a training record is a `CheckpointError`; other files may be absent."""
    events, unreadable = read_log(folder / LOG)
    train = in_order(record for record in events if record.get("event") == "train")
    if not train:
        raise CheckpointError(
            f"{folder / LOG}: no training step is logged yet.\n  Wait for the run's first log event."
        )
    text, recipe = read_recipe(folder / "cloze" / "recipe.yaml")
    task = read_object(folder / _TASK)
    return RecordedRun(
        name=name or folder.resolve().name,
        folder=folder,
        train=train,
        held_out=in_order(record for record in events if record.get("event") == "held_out"),
        samples=in_order(record for record in events if record.get("event") == "samples"),
        dev=in_order(record for record in events if record.get("event") == "dev"),
        tables=list({str(record.get("title")): record for record in events if record.get("event") == "table"}.values()),
        recipe_text=text,
        recipe=recipe,
        environment=read_object(folder / "cloze" / "environment.json"),
        unreadable_lines=unreadable,
        budget=next((str(record["budget"]) for record in reversed(events) if record.get("budget")), ""),
        remarks=[str(remark) for remark in task.get("remarks") or ()],
        simple_answers=simple_answers(
            task.get("baseline"), (task.get("ngrams") or {}).get("dev"), mixture=(task.get("mixture") or {}).get("dev")
        ),
        baselines=_baselines(events),
    )


def read_log(path: Path) -> tuple[list[Record], int]:
    """The records of a JSON-lines file, and how many lines could not be read (a killed run may cut its last line)."""
    records, unreadable = [], 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                record = parse_json(line)
            except ValueError:
                unreadable += 1
                continue
            if isinstance(record, dict):
                records.append(record)
    return records, unreadable


def in_order(records: Iterable[Record]) -> list[Record]:
    """Records by step: a run that was resumed wrote some steps twice, and the later record is the one that counts."""
    ordered: list[Record] = []
    for record in records:
        step = number(record, "step") or 0.0
        while ordered and (number(ordered[-1], "step") or 0.0) >= step and not _same_moment(ordered[-1], record):
            ordered.pop()
        ordered.append(record)
    return ordered


def _same_moment(a: Record, b: Record) -> bool:
    """Two records of one step that both belong, such as the held-out losses of two mixture entries."""
    return a.get("step") == b.get("step") and a.get("entry") != b.get("entry")


def read_recipe(path: Path) -> tuple[str, Record]:
    """A recipe's text and its tree; ("", {}) if there is none, only the text if it is not YAML."""
    if not path.is_file():
        return "", {}
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        tree = read_yaml(text, str(path)).plain()
    except RecipeError:
        tree = None
    return text, tree if isinstance(tree, dict) else {}


def read_object(path: Path) -> Record:
    """A JSON object of a run's folder; {} if it is absent or damaged."""
    try:
        value = parse_json(read_small(path))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
