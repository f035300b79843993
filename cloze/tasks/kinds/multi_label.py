"""Which classes a text or a pair of texts has, where it may have several or none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import OPTION, Table
from cloze.corpus.records.several import chosen, classes_of
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError, propose
from cloze.registry import register
from cloze.tasks.labels import names_of_numbers, remark_on_numbers
from cloze.tasks.linear.classes import LinearTexts
from cloze.tasks.linear.estimators import Sets
from cloze.tasks.linear.linear_task import Outputs
from cloze.tasks.measures.class_report import ClassCounts, samples_average
from cloze.tasks.measures.label_sets import SET_METRICS, set_metrics, sets_at_most
from cloze.tasks.measures.metrics import ks_of, require_share
from cloze.tasks.task import Evaluation, Report, cut_remark
from cloze.tasks.texts import Answered, AnsweredTexts, CellTask, SummaryLearner, each_text, head_named


@dataclass(frozen=True)
class MultiLabel(CellTask):
    """A task whose answers are sets of classes; `separator` separates them in a cell, `threshold` is the probability from
    which on a class is predicted, and `at` are the numbers of most probable classes whose precision and recall are measured.
    `names` are those of the classes where files have 0 and 1 (`ClassesAnswer`)."""

    separator: str = ","
    threshold: float = 0.5
    at: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    name: str = "multi_label"
    metrics: ClassVar[Mapping[str, bool]] = SET_METRICS

    def __post_init__(self) -> None:
        require_share(self.threshold)

    def answers(self, table: Table) -> list[list[str]]:
        """The classes of every row, in one cell or in a column for each."""
        if self.label in table.columns or not self.names or not set(self.names) <= set(table.columns):
            return super().answers(table)
        columns = [table.column(name, OPTION.sibling("label", "NAME")) for name in self.names]
        answers = []
        for line, *bits in zip(table.lines, *columns, strict=True):
            try:
                answers.append(chosen(bits, self.names))
            except ValueError as error:
                raise TaskError(f"{table.path}:{line}: {error}") from None
        return answers

    def answer(self, cell: str) -> list[str]:
        """A cell as classes."""
        return classes_of(cell, self.separator, self.names)

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> MultiLabeller:
        """The labeller of a fine-tuned folder."""
        reader = Reader.of(loaded, precision=precision)
        return MultiLabeller(
            reader, head_named(loaded, described), self, described["labels"], length=described.get("length"),
            numbered=bool(described.get("numbered")),
        )

    def linear(self, labels: Sequence[str] = ()) -> LinearMultiLabel | None:
        """Each class by the n-grams of the text or of both texts; none if rows are about pictures."""
        return None if self.picture is not None else LinearMultiLabel(self, labels)

    def constant(self, always: str, examples: AnsweredTexts[list[str]], labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one set, a JSON list."""
        truth = label_sets(examples, labels)
        guess = np.isin(np.array(labels, dtype=object), json.loads(always)).astype(np.float64)
        return set_metrics(truth, np.broadcast_to(guess, truth.shape), self.threshold)

    def description(self) -> dict[str, Any]:
        """The columns, what separates classes, and from which probability on one is predicted."""
        names = {"names": list(self.names)} if self.names else {}
        return {**super().description(), "separator": self.separator, "threshold": self.threshold, **names}


def label_sets(
    examples: AnsweredTexts[list[str]], known: Sequence[str], *, numbered: bool = False
) -> NDArray[np.float64]:
    """The sets of the examples as (N, C) of 0 and 1; a class that is not known is a `TaskError` with file and line. `numbered`: a
    file may have the numbers of the classes in their place."""
    indices = {label: number for number, label in enumerate(known)}
    names = names_of_numbers(chain.from_iterable(examples.known()), known, numbered=numbered)
    indices |= {number: indices[label] for number, label in names.items()}
    sets = np.zeros((len(examples), len(known)))
    for row, (labels, line) in enumerate(zip(examples.known(), examples.lines, strict=True)):
        for label in labels:
            if label not in indices:
                among = "in config.json" if numbered else "in the training examples"
                raise TaskError(
                    f"{examples.path}:{line}: the label {label!r} does not occur {among}. "
                    f"{propose(label, known)}"
                )
            sets[row, indices[label]] = 1.0
    return sets


class LinearMultiLabel(LinearTexts):
    """A linear model for each class."""

    @property
    def estimator(self) -> Sets:
        """Logistic regression of each class."""
        return Sets()

    def labels_of(self, examples: AnsweredTexts[list[str]]) -> tuple[str, ...]:
        """All classes of the sets, sorted."""
        return tuple(sorted(set(chain.from_iterable(examples.known()))))

    def targets(self, examples: AnsweredTexts[list[str]]) -> NDArray[np.float64]:
        """The sets as (N, C) of 0 and 1."""
        return label_sets(examples, self.labels)

    def judged(self, examples: AnsweredTexts[list[str]], outputs: Outputs) -> NDArray[np.float64]:
        """The given set of every example and the probabilities of all classes, (N, 2, C)."""
        return np.stack([self.targets(examples), outputs], axis=1)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Those of sets."""
        return _metrics(judged, len(self.labels), self.task)


def _metrics(judged: Any, classes: int, task: MultiLabel) -> dict[str, float]:
    """Every metric of given sets and probabilities (N, 2, C)."""
    both = np.asarray(judged, np.float64).reshape(-1, 2, classes)
    at = sets_at_most(both[:, 0], both[:, 1], task.at) if task.at else {}
    return {**set_metrics(both[:, 0], both[:, 1], task.threshold), **at}


@dataclass(frozen=True)
class LabelSet:
    """The classes of one row with what the row's JSON object begins with, the probability of every class, and how many tokens
    did not fit."""

    about: Mapping[str, Any]
    labels: list[str]
    probabilities: dict[str, float]
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object; a text that was read whole has no `cut`."""
        record = {**self.about, "labels": self.labels, "probabilities": self.probabilities}
        return {**record, "cut": self.cut} if self.cut else record


class MultiLabeller(SummaryLearner):
    """A network with a head that has an output for each of `labels`; `numbered`: files may give them by their numbers."""

    def __init__(
        self, reader: Reader, head: Any, task: MultiLabel, labels: Sequence[str], *, length: int | None, numbered: bool = False
    ) -> None:
        super().__init__(reader, head, task, length=length)
        self.numbered = numbered
        self.names = self.labels = tuple(labels)

    def answered(self, examples: AnsweredTexts[list[str]]) -> list[Answered[NDArray[np.float64]]]:
        """The examples with their sets (C,) of 0 and 1."""
        sets = label_sets(examples, self.names, numbered=self.numbered)
        return [Answered(*row) for row in zip(self.encode(examples), sets, strict=True)]

    def probabilities(
        self, rows: Sequence[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float64]:
        """The probability of every class for every framed row, (N, C)."""
        scores = torch.from_numpy(self.all_scores(rows, size=size, report=report)).double()
        return np.asarray(torch.sigmoid(scores).numpy()) if len(rows) else np.zeros((0, len(self.names)))

    def outputs(
        self, examples: AnsweredTexts[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float64]:
        """The probability (N, C) that the network gives to each class."""
        return self.probabilities(self.encode(examples), size=size, report=report)

    def judge(
        self, rows: Sequence[Answered[NDArray[np.float64]]], metric: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> NDArray[np.float64]:
        """The given set of every row and the probabilities of all classes, (N, 2, C)."""
        return _judged(rows, self.probabilities([row.framed for row in rows], size=size, report=report))

    def answers(self, judged: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """The given sets and those of the classes that are likely enough, (N, C) each."""
        both = np.asarray(judged, np.float64).reshape(-1, 2, len(self.names))
        return list(both[:, 0]), list(both[:, 1] >= self.task.threshold)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Every metric of given sets and probabilities (N, 2, C)."""
        return _metrics(judged, len(self.names), self.task)

    def evaluate(
        self, examples: AnsweredTexts[list[str]], always: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> Evaluation:
        """Metrics on examples with sets of classes, and those of `always` giving one set."""
        rows = self.answered(examples)
        probabilities = self.mixed(examples, self.probabilities([row.framed for row in rows], size=size, report=report))
        judged = _judged(rows, probabilities)
        constant = None if always is None else {"always": always, **self.task.constant(always, examples, self.names)}
        cut = cut_remark([row.framed.cut for row in rows], self.length)
        gold = chain.from_iterable(examples.known())
        numbers = remark_on_numbers(names_of_numbers(gold, self.names, numbered=self.numbered))
        remarks = (*numbers, *([] if cut is None else [cut]))
        truth, guess = judged[:, 0] > 0.5, judged[:, 1] >= self.task.threshold
        counts = ClassCounts.of_sets(truth, guess)
        return Evaluation(
            len(rows), self.metrics(judged), constant, remarks, judged=judged,
            report=counts.rows(self.names), averages=[*counts.averages(), samples_average(truth, guess)],
        )

    def predict(
        self, examples: AnsweredTexts[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> list[LabelSet]:
        """The set of every example: the classes whose probability is the threshold or more."""
        framed = self.encode(examples)
        probabilities = self.mixed(examples, self.probabilities(framed, size=size, report=report))
        predictions = []
        for about, read, row in zip(each_text(examples), framed, probabilities.tolist(), strict=True):
            chosen = [label for label, p in zip(self.names, row, strict=True) if p >= self.task.threshold]
            shares = {label: round(p, 6) for label, p in zip(self.names, row, strict=True)}
            predictions.append(LabelSet(about, chosen, shares, read.cut))
        return predictions


def _judged(rows: Sequence[Answered[NDArray[np.float64]]], probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The given sets and the probabilities of all classes, (N, 2, C)."""
    return np.stack([np.array([row.answer for row in rows]).reshape(probabilities.shape), probabilities], axis=1)


@register("task", "multi_label")
def multi_label(
    text: str = "text", text_b: str | None = None, label: str = "label", separator: str = ",", threshold: float = 0.5,
    at: Sequence[int] = (), picture: str | None = None, names: Sequence[str] = (),
) -> MultiLabel:
    """The classes of a text, or with `text_b` of two, of which it may have any number. The first three are names of columns."""
    return MultiLabel(
        text, text_b, label, picture=picture, separator=separator, threshold=threshold, at=ks_of(at), names=tuple(names)
    )
