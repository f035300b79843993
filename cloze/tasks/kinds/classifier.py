"""A network that reads texts and a head that classifies them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError
from cloze.tasks.labels import Examples, label_ids, names_of_numbers, remark_on_numbers
from cloze.tasks.measures.class_report import class_figures
from cloze.tasks.measures.metrics import at_most, measure, ranks_of
from cloze.tasks.task import Evaluation, FramedRow, Report, cut_remark
from cloze.tasks.texts import SummaryLearner, TableTask, head_named


@dataclass(frozen=True)
class Labelled(FramedRow):
    """A framed example and the number of its label."""

    label: int


@dataclass(frozen=True)
class Choice:
    """The predicted label of a row.

    Attributes:
        line: The line of the file that the row comes from.
        text: The text.
        text_b: The second text, if the task has one.
        label: The most probable label; with a threshold, the one that it decides for.
        probability: Its probability.
        probabilities: The probability of every label.
        cut: How many tokens of the text did not fit.
    """

    line: int
    text: str
    text_b: str | None
    label: str
    probability: float
    probabilities: dict[str, float]
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object of this choice; a task with one text has no `text_b`, and one that was not cut has no `cut`."""
        record = dict(self.__dict__)
        if self.text_b is None:
            del record["text_b"]
        if not self.cut:
            del record["cut"]
        return record


class Classifier(SummaryLearner):
    """A reader with a head over `labels`; `numbered`: files may give them by their numbers."""

    def __init__(
        self, reader: Reader, head: nn.Module, labels: Sequence[str], task: Any, *, length: int | None, numbered: bool = False
    ) -> None:
        super().__init__(reader, head, task, length=length)
        self.numbered = numbered
        self.names = tuple(labels)
        self.labels = self.names
        if task.threshold is not None and len(self.names) != 2:
            raise TaskError(
                f"--threshold {task.threshold:g}: is for two classes; this model has {len(self.names)}. Leave it out."
            )

    def answered(self, examples: Examples) -> list[Labelled]:
        """The examples with the numbers of their labels."""
        labels = label_ids(examples, self.names, numbered=self.numbered).tolist()
        return [Labelled(framed, label) for framed, label in zip(self.encode(examples), labels, strict=True)]

    def probabilities(
        self, framed: Sequence[Framed], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float32]:
        """The probability of each label for every row: (N, C), in the order of the rows; runs in eval mode."""
        scores = torch.from_numpy(self.all_scores(framed, size=size, report=report))
        return scores.softmax(-1).numpy() if len(framed) else np.zeros((0, len(self.names)), np.float32)

    def outputs(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float32]:
        """The probability (N, C) that the network gives to each label."""
        return self.probabilities(self.encode(examples), size=size, report=report)

    def judge(
        self, rows: Sequence[Labelled], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.int64]:
        """The right label and the most probable one of every row, (N, 2); with `at` a third column, the rank of the right one."""
        truth = np.array([row.label for row in rows], np.int64)
        return judged_classes(truth, self.probabilities([row.framed for row in rows], size=size, report=report), self.task)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Every metric of the items of `judge`."""
        return class_metrics(judged, len(self.names), self.task.at)

    def evaluate(
        self, examples: Examples, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """Metrics on labelled examples; a label that training never saw is a `TaskError`."""
        rows = self.answered(examples)
        probabilities = self.mixed(examples, self.probabilities([row.framed for row in rows], size=size, report=report))
        judged = judged_classes(np.array([row.label for row in rows], np.int64), probabilities, self.task)
        baseline = None
        if always is not None:
            truth, index = judged[:, 0], self.names.index(always)
            alone = measure(truth, np.full_like(truth, index), len(self.names))
            baseline = {"always": always, **alone, **self.task.constant_at(truth, index)}
        cut = cut_remark([row.framed.cut for row in rows], self.length)
        numbers = remark_on_numbers(names_of_numbers(examples.known(), self.names, numbered=self.numbered))
        remarks = (*numbers, *([] if cut is None else [cut]))
        return Evaluation(
            len(rows), self.metrics(judged), baseline, remarks, judged=judged,
            **class_figures(judged[:, 0], judged[:, 1], probabilities, self.names),
        )

    def predict(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> list[Choice]:
        """The most probable label of every example."""
        framed = self.encode(examples)
        probabilities = self.mixed(examples, self.probabilities(framed, size=size, report=report))
        return choices(examples, self.names, probabilities, [row.cut for row in framed], threshold=self.task.threshold)

    def scored(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> Iterator[dict[str, Any]]:
        """Every example with the probabilities of all labels in place of its label, as the answer kind `scores` reads them."""
        framed = self.encode(examples)
        probabilities = self.mixed(examples, self.probabilities(framed, size=size, report=report))
        return scored(examples, self.task, self.names, probabilities, [row.cut for row in framed])


def judged_classes(truth: NDArray[np.int64], probabilities: NDArray[np.floating], task: Any) -> NDArray[np.int64]:
    """The items of `Classifier.judge` from the right labels (N,) and the probabilities (N, C)."""
    ranks = [ranks_of(probabilities, truth)] if task.at else []
    return np.stack([truth, decided(probabilities, task.threshold), *ranks], axis=1)


def class_metrics(judged: Any, classes: int, at: Sequence[int]) -> dict[str, float]:
    """Every metric of the items of `Classifier.judge`; with `at` also precision and recall of the first k."""
    truth, guess, *ranks = np.asarray(judged).T
    return {**measure(truth, guess, classes), **(at_most(ranks[0], at, classes) if ranks else {})}


def decided(probabilities: NDArray[np.floating], threshold: float | None = None) -> NDArray[np.int64]:
    """The label of every row, from the probabilities (N, C): the most probable one (the first if equal), or with a `threshold`
    the second of two from that probability on. The comparison is in float64, because float32 would round the threshold."""
    chosen = probabilities.argmax(1) if threshold is None else probabilities[:, 1].astype(np.float64) >= threshold
    return chosen.astype(np.int64)


def choices(
    examples: Examples, names: Sequence[str], probabilities: NDArray[np.floating], cut: Sequence[int], *,
    threshold: float | None = None,
) -> list[Choice]:
    """The label of every example (see `decided`), from the probabilities (N, C) of the labels `names`."""
    answers = []
    for line, texts, row, lost, best in zip(
        examples.lines, examples.rows(), probabilities, cut, decided(probabilities, threshold).tolist(), strict=True
    ):
        shares = {label: round(float(p), 6) for label, p in zip(names, row, strict=True)}
        text, *others = texts
        answers.append(Choice(line, text, others[0] if others else None, names[best], round(float(row[best]), 6), shares, lost))
    return answers


def scored(
    examples: Examples, task: TableTask, names: Sequence[str], probabilities: NDArray[np.floating], cut: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Every example under the names of the task's columns, with the probabilities (N, C) of the labels `names` in place of its
    label; `cut` is how many of its tokens did not fit."""
    for line, texts, row, lost in zip(examples.lines, examples.rows(), probabilities.tolist(), cut, strict=True):
        named = dict(zip((task.text, str(task.text_b)), texts, strict=False))
        yield {"line": line, **({"cut": lost} if lost else {}), **named, task.label: dict(zip(names, row, strict=True))}


def load(loaded: Checkpoint, task: Any, described: Mapping[str, Any], precision: torch.dtype | None) -> Classifier:
    """The classifier of a fine-tuned checkpoint; a sequence-classification folder that transformers wrote works too."""
    reader = Reader.of(loaded, precision=precision)
    head = head_named(loaded, described, "relation_prediction")
    return Classifier(
        reader, head, described["labels"], task, length=described.get("length"), numbered=bool(described.get("numbered"))
    )
