"""A network that reads texts and a head that classifies them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.decoding.layout import Framed
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError
from cloze.tasks.labels import Examples, label_ids
from cloze.tasks.metrics import measure
from cloze.tasks.task import Evaluation, FramedRow, Learner, Report, cut_remark, evaluating


@dataclass(frozen=True)
class Labelled(FramedRow):
    """A framed example and the number of its label."""

    label: int


@dataclass(frozen=True)
class Choice:
    """The label of one row: the file's line it comes from, its texts, the probability of every label, and how many tokens did not
    fit."""

    line: int
    text: str
    text_b: str | None
    label: str
    probability: float
    probabilities: dict[str, float]
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object of this choice; a task with one text has no `text_b`, a text that was read whole no `cut`."""
        record = dict(self.__dict__)
        if self.text_b is None:
            del record["text_b"]
        if not self.cut:
            del record["cut"]
        return record


class Classifier(Learner):
    """A reader with a head over `labels`."""

    def __init__(self, reader: Reader, head: nn.Module, labels: Sequence[str], task: Any, *, length: int | None) -> None:
        super().__init__(reader, head, task, length=length)
        self.names = tuple(labels)
        self.labels = self.names

    def encode(self, examples: Examples) -> list[Framed]:
        """The examples as the network reads them."""
        return self.reader.encode(examples.texts, examples.others, longest=self.length)

    def answered(self, examples: Examples) -> list[Labelled]:
        """The examples with the numbers of their labels."""
        labels = label_ids(examples, self.names).tolist()
        return [Labelled(framed, label) for framed, label in zip(self.encode(examples), labels, strict=True)]

    def scores(self, rows: Sequence[Framed]) -> Tensor:
        """Scores (B, C) of framed rows."""
        batch = self.exact.batch(rows)
        states = self.exact.states(batch, self.head.reads)
        places = torch.arange(len(rows))
        if getattr(self.head, "of_texts", False):
            places = text_ends(rows, batch["tokens"].shape[1])
        return self.exact.scores(self.head, states, batch, places.to(self.exact.device))

    @torch.inference_mode()
    def probabilities(
        self, framed: Sequence[Framed], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float32]:
        """The probability of each label for every row: (N, C), in the order of the rows; runs in eval mode."""
        with evaluating(self):
            found = np.empty((len(framed), len(self.names)), np.float32)
            for index in by_length([len(row) for row in framed], rows=size):
                found[index] = self.scores([framed[i] for i in index]).softmax(-1).cpu().numpy()
                report(len(index))
            return found

    def judge(
        self, rows: Sequence[Labelled], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.int64]:
        """The right label and the most probable one of every row: (N, 2)."""
        truth = np.array([row.label for row in rows], np.int64)
        guess = self.probabilities([row.framed for row in rows], size=size, report=report).argmax(1)
        return np.stack([truth, guess], axis=1)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Every metric of pairs of labels (N, 2)."""
        truth, guess = np.asarray(judged).T
        return measure(truth, guess, len(self.names))

    def evaluate(
        self, examples: Examples, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """Metrics on labelled examples; a label that training never saw is a `TaskError`."""
        rows = self.answered(examples)
        judged = self.judge(rows, size=size, report=report)
        baseline = None
        if always is not None:
            constant = np.full_like(judged[:, 0], self.names.index(always))
            baseline = {"always": always, **measure(judged[:, 0], constant, len(self.names))}
        remark = cut_remark([row.framed.cut for row in rows], self.length)
        return Evaluation(len(rows), self.metrics(judged), baseline, () if remark is None else (remark,), judged=judged)

    def predict(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> list[Choice]:
        """The most probable label of every example."""
        framed = self.encode(examples)
        probabilities = self.probabilities(framed, size=size, report=report)
        others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
        made = []
        for line, text, other, read, row in zip(examples.lines, examples.texts, others, framed, probabilities, strict=True):
            best = int(row.argmax())
            shares = {label: round(float(p), 6) for label, p in zip(self.names, row, strict=True)}
            made.append(Choice(line, text, other, self.names[best], round(float(row[best]), 6), shares, read.cut))
        return made

    def scored(
        self, examples: Examples, *, size: int = 64, report: Report = lambda done: None
    ) -> Iterator[dict[str, Any]]:
        """Every example with the probabilities of all labels as its label, by the names of the task's columns: what the answer
        `scores` reads."""
        found = self.probabilities(self.encode(examples), size=size, report=report)
        others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
        for line, text, other, row in zip(examples.lines, examples.texts, others, found.tolist(), strict=True):
            second = {} if other is None else {self.task.text_b: other}
            yield {"line": line, self.task.text: text, **second, self.task.label: dict(zip(self.names, row, strict=True))}


def text_ends(rows: Sequence[Framed], width: int) -> Tensor:
    """The flat places of the first and the last token of both texts of every row (B, 4); those of a text that shows none are the
    row's first token."""
    found = torch.zeros(len(rows), 4, dtype=torch.int64)
    for number, row in enumerate(rows):
        for text in (0, 1):
            columns = np.flatnonzero(row.part == text)
            if len(columns):
                found[number, 2 * text : 2 * text + 2] = torch.tensor([int(columns[0]), int(columns[-1])])
    return found + torch.arange(len(rows))[:, None] * width


def load(loaded: Checkpoint, task: Any, described: Mapping[str, Any], precision: torch.dtype | None) -> Classifier:
    """The classifier of a fine-tuned checkpoint; a sequence-classification folder that transformers wrote works too."""
    summaries = [name for name, head in loaded.heads.items() if getattr(head, "kind", None) == "relation_prediction"]
    name = str(described["head"] or (summaries or ["relation_prediction"])[0])
    if name not in loaded.heads:
        raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
    reader = Reader.of(loaded, precision=precision)
    return Classifier(reader, loaded.heads[name], described["labels"], task, length=described.get("length"))
