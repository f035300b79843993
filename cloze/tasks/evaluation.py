"""`evaluate` and `predict` with a `Learner`, and the JSON lines that `cloze predict` writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.errors import TaskError
from cloze.tasks.bootstrap import intervals
from cloze.tasks.conllu import GENERATOR
from cloze.tasks.task import Evaluation, Learner, Prediction, Report, Written, cut_remark
from cloze.whole import require_output, whole_file


def evaluate(
    learner: Learner, examples: Any, *, always: str | None = None, size: int = 64, report: Report = lambda done: None,
    bootstrap: int | None = None, seed: int = 0,
) -> Evaluation:
    """All metrics of the task; `always` is the training text's most frequent answer, `size` the rows of a batch.

    `bootstrap`: adds intervals over this many resamples of the examples, drawn with `seed` (see `cloze.tasks.bootstrap`).
    """
    found = learner.evaluate(examples, always, size=size, report=report)
    if bootstrap is None:
        return found
    if not len(found.judged):
        raise TaskError(f"--bootstrap: {learner.task.name} is not measured example by example. Leave it out.")
    return replace(found, intervals=intervals(found.judged, learner.metrics, resamples=bootstrap, seed=seed))


def predict(
    learner: Learner, examples: Any, *, size: int = 64, report: Report = lambda done: None
) -> Sequence[Prediction]:
    """A prediction for every example, in order; answers in the examples are ignored."""
    return learner.predict(examples, size=size, report=report)


def cut_of(predictions: Sequence[Prediction], length: int | None) -> str | None:
    """A sentence on how many texts were cut; None if all were read whole."""
    return cut_remark([prediction.cut for prediction in predictions], length)


def check_predictions(path: Path) -> None:
    """A `UserError` if predictions cannot be written to `path`; an existing file is only replaced if it holds predictions."""
    require_output(path, what="predictions", holds=_holds_predictions)


def _holds_predictions(path: Path) -> bool:
    """Whether the first line is one that `write_predictions` writes: an object that begins with the line of its text, or the
    comment that names the parser."""
    with path.open("rb") as file:
        first = file.read(64)
    return not first or first.startswith((b'{"line": ', GENERATOR.encode()))


def write_predictions(predictions: Sequence[Prediction], path: Path | None) -> None:
    """JSON lines to a file, whole or not at all, or to standard output for None.

    Predictions with a format of their own (`written`; trees are CoNLL-U) are JSON lines only in a file with that ending.
    """
    own = path is None or path.suffix != ".jsonl"
    lines = (
        prediction.written if own and isinstance(prediction, Written)
        else json.dumps(prediction.record(), ensure_ascii=False) + "\n"
        for prediction in predictions
    )
    _write_lines(lines, path)


def write_records(records: Iterable[Mapping[str, Any]], path: Path | None) -> None:
    """JSON objects as `write_predictions` writes those of predictions."""
    _write_lines((json.dumps(record, ensure_ascii=False) + "\n" for record in records), path)


def _write_lines(lines: Iterable[str], path: Path | None) -> None:
    if path is None:
        sys.stdout.writelines(lines)
        return
    with whole_file(path) as stage, stage.open("w", encoding="utf-8") as file:
        file.writelines(lines)
