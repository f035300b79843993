"""Measure a classifier on labelled text, and label text with it."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.tasks.classification import Examples, label_ids, label_names
from cloze.tasks.classifier import Classifier
from cloze.tasks.metrics import majority, measure

Report = Callable[[int], None]


@dataclass(frozen=True)
class Evaluation:
    """Metrics on some examples; `baseline` are those of always answering the training text's most frequent label."""

    examples: int
    metrics: dict[str, float]
    baseline: dict[str, Any] | None


def evaluate(
    classifier: Classifier,
    examples: Examples,
    *,
    counts: Mapping[str, int] | None = None,
    rows: int = 64,
    report: Report = lambda done: None,
) -> Evaluation:
    """Metrics on labelled examples. `counts` are the training text's labels; a label it never saw is a `TaskError`."""
    labels = classifier.labels
    truth = label_ids(examples, labels)
    probabilities = classifier.probabilities(classifier.encode(examples), rows=rows, report=report)
    metrics = measure(truth, probabilities.argmax(1), len(labels))
    if not counts:
        return Evaluation(len(examples), metrics, None)
    most = max(labels, key=lambda label: counts.get(label, 0))
    always = measure(truth, truth * 0 + labels.index(most), len(labels))
    return Evaluation(len(examples), metrics, {"label": most, **always})


def baseline(train: Examples, dev: Examples) -> dict[str, Any]:
    """The most frequent training label, the dev metrics of always answering it, and the counts of all labels."""
    labels = label_names(train.labels or ())
    answers = label_ids(train, labels)
    most, metrics = majority(answers, label_ids(dev, labels), len(labels))
    return {"label": labels[most], **metrics, "counts": dict(Counter(labels[i] for i in answers.tolist()))}


@dataclass(frozen=True)
class Prediction:
    """The label of one row: the file's line it comes from, its texts, and the probability of every label."""

    line: int
    text: str
    text_b: str | None
    label: str
    probability: float
    probabilities: dict[str, float]

    def record(self) -> dict[str, Any]:
        """The JSON object of this prediction; a task with one text has no `text_b`."""
        record = dict(self.__dict__)
        if self.text_b is None:
            del record["text_b"]
        return record


def predict(
    classifier: Classifier, examples: Examples, *, rows: int = 64, report: Report = lambda done: None
) -> list[Prediction]:
    """The most probable label of every example, in their order; labels of the examples are not looked at."""
    probabilities = classifier.probabilities(classifier.encode(examples), rows=rows, report=report)
    others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
    made = []
    for line, text, other, row in zip(examples.lines, examples.texts, others, probabilities, strict=True):
        best = int(row.argmax())
        shares = {label: round(float(p), 6) for label, p in zip(classifier.labels, row, strict=True)}
        made.append(Prediction(line, text, other, classifier.labels[best], round(float(row[best]), 6), shares))
    return made


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
