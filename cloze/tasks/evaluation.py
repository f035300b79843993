"""Measure what was fine-tuned on examples with answers, and let it answer others."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cloze.tasks.task import Evaluation, Learner, Prediction, Report


def evaluate(
    learner: Learner, examples: Any, *, always: str | None = None, size: int = 64, report: Report = lambda done: None
) -> Evaluation:
    """All metrics of the task; `always` is the training text's most frequent answer, `size` the rows of a batch."""
    return learner.evaluate(examples, always, size=size, report=report)


def predict(
    learner: Learner, examples: Any, *, size: int = 64, report: Report = lambda done: None
) -> Sequence[Prediction]:
    """An answer for every example, in their order; answers of the examples are not looked at."""
    return learner.predict(examples, size=size, report=report)


def write_predictions(predictions: Sequence[Prediction], path: Path | None) -> None:
    """JSON lines to a file, whole or not at all, or to standard output for None."""
    lines = (json.dumps(prediction.record(), ensure_ascii=False) + "\n" for prediction in predictions)
    if path is None:
        sys.stdout.writelines(lines)
        return
    stage = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with stage.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        os.replace(stage, path)
    finally:
        stage.unlink(missing_ok=True)
