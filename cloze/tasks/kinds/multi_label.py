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

from cloze.corpus.readers.labelled import TextTable
from cloze.corpus.records.several import chosen, classes_of
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.registry import register
from cloze.tasks.linear.estimators import Sets
from cloze.tasks.linear.linear_task import LinearTexts
from cloze.tasks.measures.class_report import ClassCounts, samples_average
from cloze.tasks.measures.label_sets import SET_METRICS, set_metrics, sets_at_most
from cloze.tasks.measures.metrics import ks_of, require_share
from cloze.tasks.task import LabelledRow, Prediction, Report, silent
from cloze.tasks.texts import (
    LABEL,
    LabelledTexts,
    SummaryLearner,
    TextTask,
    head_of_task,
    label_numbers,
    names_of_numbers,
    parsed,
    remark_on_numbers,
)


@dataclass(frozen=True)
class MultiLabel(TextTask):
    """A task whose answers are sets of classes; `separator` separates them in a cell, `threshold` is the probability from
    which on a class is predicted, and `at` are the numbers of most probable classes whose precision and recall are measured.
    `names` are those of the classes where files have 0 and 1 (`ClassesAnswer`)."""

    separator: str = ","
    threshold: float = 0.5
    at: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    name: str = "multi_label"
    pipeline: ClassVar[str | None] = "text-classification"
    metrics: ClassVar[Mapping[str, bool]] = SET_METRICS

    def __post_init__(self) -> None:
        require_share(self.threshold)

    def read_labels(self, table: TextTable, second_texts: list[Any] | None) -> list[list[str]]:
        """The classes of every row, in one cell or in a column for each."""
        if self.label in table.columns or not self.names or not set(self.names) <= set(table.columns):
            return super().read_labels(table, second_texts)
        columns = [table.column(name, LABEL) for name in self.names]
        return parsed(table, zip(*columns, strict=True), lambda bits: chosen(bits, self.names))

    def parse_label(self, cell: str) -> list[str]:
        """A cell as classes."""
        return classes_of(cell, self.separator, self.names)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> MultiLabeller:
        """The labeller of a fine-tuned folder."""
        return MultiLabeller(
            Reader.of(loaded), head_of_task(loaded, task_json), self, length=task_json.get("length"),
            labels=task_json["labels"], numbered=bool(task_json.get("numbered")),
        )

    def truth(
        self, examples: LabelledTexts[list[str]], labels: Sequence[str], *, numbered: bool = False
    ) -> NDArray[np.float64]:
        """The sets of the examples as (N, C) of 0 and 1."""
        sets = np.zeros((len(examples), len(labels)))
        numbers = label_numbers(examples.path, examples.lines, examples.require_labels(), labels, numbered=numbered)
        for row, classes in zip(sets, numbers, strict=True):
            row[classes] = 1.0
        return sets

    def per_example(self, truth: Any, outputs: NDArray[Any], labels: Sequence[str]) -> NDArray[np.float64]:
        """The given set of every example and the probabilities of all classes, (N, 2, C)."""
        return np.stack([np.array(truth).reshape(outputs.shape), outputs], axis=1)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """Every metric of given sets and probabilities (N, 2, C)."""
        truth, probabilities = np.moveaxis(np.asarray(per_example, np.float64).reshape(-1, 2, len(labels)), 1, 0)
        at = sets_at_most(truth, probabilities, self.at) if self.at else {}
        return {**set_metrics(truth, probabilities, self.threshold), **at}

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one set, a JSON list."""
        guess = np.isin(np.array(labels, dtype=object), json.loads(constant_answer)).astype(np.float64)
        return set_metrics(truth, np.broadcast_to(guess, truth.shape), self.threshold)

    def linear(self, labels: Sequence[str] = ()) -> LinearMultiLabel | None:
        """Each class by the n-grams of the text or of both texts; none if rows are about pictures."""
        return None if self.picture is not None else LinearMultiLabel(self, labels)

    def description(self) -> dict[str, Any]:
        """The columns, what separates classes, and from which probability on one is predicted."""
        names = {"names": list(self.names)} if self.names else {}
        return {**super().description(), "separator": self.separator, "threshold": self.threshold, **names}


class LinearMultiLabel(LinearTexts):
    """A linear model for each class."""

    @property
    def estimator(self) -> Sets:
        """Logistic regression of each class."""
        return Sets()

    def labels_of(self, examples: LabelledTexts[list[str]]) -> tuple[str, ...]:
        """All classes of the sets, sorted."""
        return tuple(sorted(set(chain.from_iterable(examples.require_labels()))))


@dataclass(frozen=True)
class LabelSet(Prediction):
    """The classes of one row, its line and texts, the probability of every class, and how many tokens did not fit."""

    line: int
    text: str
    text_b: str | None
    labels: list[str]
    probabilities: dict[str, float]
    cut: int = 0


class MultiLabeller(SummaryLearner):
    """A network with a head that has an output for each of `labels`."""

    def row_outputs(self, rows: Sequence[Framed], size: int = 64, report: Report = silent) -> NDArray[np.float64]:
        """The probability of every class for every framed row, (N, C)."""
        scores = torch.from_numpy(self.all_scores(rows, size, report)).double()
        return np.asarray(torch.sigmoid(scores).numpy()) if len(rows) else np.zeros((0, len(self.label_names)))

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """The given sets and those of the classes that are likely enough, (N, C) each."""
        both = np.asarray(per_example, np.float64).reshape(-1, 2, len(self.label_names))
        return list(both[:, 0]), list(both[:, 1] >= self.task.threshold)

    def remarks(self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """Which classes were given by their numbers, and how many texts were cut."""
        names = names_of_numbers(chain.from_iterable(examples.require_labels()), self.label_names, numbered=self.numbered)
        return [*remark_on_numbers(names), *super().remarks(examples, rows, outputs, per_example)]

    def details(self, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> dict[str, Any]:
        """The figures by class, with their averages."""
        truth, guess = per_example[:, 0] > 0.5, per_example[:, 1] >= self.task.threshold
        counts = ClassCounts.of_sets(truth, guess)
        return {"by_class": counts.rows(self.label_names), "averages": [*counts.averages(), samples_average(truth, guess)]}

    def predictions(self, examples: LabelledTexts[Any], rows: Sequence[Framed], outputs: Any) -> list[LabelSet]:
        """The set of every example: the classes whose probability is the threshold or more."""
        sets = []
        for about, row, shares in zip(examples.with_lines(), rows, outputs.tolist(), strict=True):
            classes = [label for label, p in zip(self.label_names, shares, strict=True) if p >= self.task.threshold]
            by_label = {label: round(p, 6) for label, p in zip(self.label_names, shares, strict=True)}
            sets.append(LabelSet(*about, classes, by_label, row.cut))
        return sets


@register("task", "multi_label")
def multi_label(
    text: str = "text", text_b: str | None = None, label: str = "label", separator: str = ",", threshold: float = 0.5,
    at: Sequence[int] = (), picture: str | None = None, names: Sequence[str] = (),
) -> MultiLabel:
    """The classes of a text, or with `text_b` of two, of which it may have any number. The first three are names of columns."""
    return MultiLabel(
        text, text_b, label, picture=picture, separator=separator, threshold=threshold, at=ks_of(at), names=tuple(names)
    )
