"""Classify one text or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.labelled import TextTable, single_class
from cloze.corpus.records.classes import read_class_folders
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.linear.estimators import Classes
from cloze.tasks.linear.linear_task import LinearTexts
from cloze.tasks.measures.class_report import class_figures
from cloze.tasks.measures.metrics import METRICS, at_most, ks_of, measure, ranks_of, require_share
from cloze.tasks.task import LabelledRow, Prediction, Report, first_columns, silent
from cloze.tasks.texts import (
    LABEL,
    Examples,
    SummaryLearner,
    TextTask,
    head_of_task,
    label_ids,
    names_of_numbers,
    parsed,
    remark_on_numbers,
)


@dataclass(frozen=True)
class Classification(TextTask):
    """A task whose labels are classes; `name` says whether it is about one text or two. `at`: the values of k for precision@k and
    recall@k. `threshold` is the probability from which on the second of two classes is predicted; None: the more probable one."""

    name: str = "sentence_classification"
    at: tuple[int, ...] = ()
    threshold: float | None = None
    pipeline: ClassVar[str | None] = "text-classification"
    instead_of_text: ClassVar[str] = "chooses a label"
    metrics: ClassVar[Mapping[str, bool]] = dict.fromkeys(METRICS, True)

    def __post_init__(self) -> None:
        require_share(self.threshold)

    def read(self, path: Path | str, *, labelled: bool = True) -> Examples:
        """The examples of a file, or of a folder per class. With `labelled=False` labels are read if the column is there."""
        if self.text_b is not None or not Path(path).is_dir() or is_columnar(path):
            return super().read(path, labelled=labelled)
        filed = list(read_class_folders(path))
        numbers = tuple(example.number for example in filed)
        return Examples([example.text for example in filed], None, [example.label for example in filed], str(path), numbers)

    def read_labels(self, table: TextTable, second_texts: list[Any] | None) -> list[str]:
        """The labels. Raises a `TaskError` with file and line if a cell does not hold exactly one."""
        return parsed(table, table.column(self.label, LABEL), lambda cell: single_class(cell, self.label))

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Classifier:
        """The classifier of a fine-tuned checkpoint; a sequence-classification folder that transformers wrote works too.

        `relation_prediction` is the head that such a folder has: named after BERT's next-sentence relation, it is also the
        classifier of one text.
        """
        reader, head = Reader.of(loaded), head_of_task(loaded, task_json, "relation_prediction")
        labels = task_json["labels"]
        if self.threshold is not None and len(labels) != 2:
            raise TaskError(f"--threshold {self.threshold:g}: is for two classes; this model has {len(labels)}. Leave it out.")
        return Classifier(
            reader, head, self, length=task_json.get("length"), labels=labels, numbered=bool(task_json.get("numbered"))
        )

    def truth(self, examples: Examples, labels: Sequence[str], *, numbered: bool = False) -> NDArray[np.int64]:
        """The numbers of the labels, (N,)."""
        return label_ids(examples, labels, numbered=numbered)

    def per_example(self, truth: Any, outputs: NDArray[np.floating], labels: Sequence[str]) -> NDArray[np.int64]:
        """The right label and the predicted one of every example, (N, 2); with `at` a third column, the rank of the right one."""
        right = np.asarray(truth, np.int64)
        ranks = [ranks_of(outputs, right)] if self.at else []
        return np.stack([right, decided(outputs, self.threshold), *ranks], axis=1)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """Accuracy, macro-F1 and Matthews correlation; with `at` also precision and recall of the first k."""
        truth, guess, *ranks = np.asarray(per_example).T
        return {**measure(truth, guess, len(labels)), **(at_most(ranks[0], self.at, len(labels)) if ranks else {})}

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label, of those of `at` only for one answer."""
        right, index = np.asarray(truth, np.int64), list(labels).index(constant_answer)
        one_answer = at_most((right != index).astype(np.int64), [k for k in self.at if k == 1], 2)
        return {**measure(right, np.full_like(right, index), len(labels)), **one_answer}

    def linear(self, labels: Sequence[str] = ()) -> LinearSingleLabel | None:
        """A class by the n-grams of the text or of both texts; none if rows are about pictures."""
        return None if self.picture is not None else LinearSingleLabel(self, labels)


class LinearSingleLabel(LinearTexts):
    """One class for each example."""

    @property
    def estimator(self) -> Classes:
        """Multinomial logistic regression."""
        return Classes(len(self.labels))

    def labels_of(self, examples: Any) -> tuple[str, ...]:
        """The labels, sorted."""
        return tuple(sorted(set(examples.require_labels())))


@dataclass(frozen=True)
class PredictedClass(Prediction):
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


class Classifier(SummaryLearner):
    """A reader with a head over `labels`."""

    def row_outputs(self, rows: Sequence[Any], size: int = 64, report: Report = silent) -> NDArray[np.floating]:
        """The probability of each label for every row: (N, C), in the order of the rows."""
        scores = torch.from_numpy(self.all_scores(rows, size, report))
        return scores.softmax(-1).numpy() if len(rows) else np.zeros((0, len(self.label_names)), np.float32)

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The first two columns."""
        return first_columns(per_example)

    def right(self, per_example: Any) -> NDArray[np.bool_]:
        """Where the first two columns are equal."""
        return np.asarray(per_example[:, 0] == per_example[:, 1])

    def remarks(self, examples: Examples, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """Which labels were given by their numbers, and how many texts were cut."""
        numbers = remark_on_numbers(names_of_numbers(examples.require_labels(), self.label_names, numbered=self.numbered))
        return [*numbers, *super().remarks(examples, rows, outputs, per_example)]

    def details(self, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> dict[str, Any]:
        """The figures by class, confusions, calibration and, of two classes, the ranking."""
        return class_figures(per_example[:, 0], per_example[:, 1], outputs, self.label_names)

    def predictions(self, examples: Examples, rows: Sequence[Framed], outputs: NDArray[np.floating]) -> list[PredictedClass]:
        """The label of every example (see `decided`)."""
        choices = []
        for about, row, shares, best in zip(
            examples.with_lines(), rows, outputs, decided(outputs, self.task.threshold).tolist(), strict=True
        ):
            by_label = {label: round(float(p), 6) for label, p in zip(self.label_names, shares, strict=True)}
            probability = round(float(shares[best]), 6)
            choices.append(PredictedClass(*about, self.label_names[best], probability, by_label, self.cut_tokens(row)))
        return choices

    def scored(self, examples: Examples, *, size: int = 64, report: Report = silent) -> Iterator[dict[str, Any]]:
        """Every example under the names of the task's columns, with the probabilities of all labels in place of its label, as the
        answer kind `scores` reads them (Schick and Schütze, 2021, §3.3)."""
        rows = self.encode(examples)
        outputs = self.mixed_outputs(examples, rows, size, report)
        for line, texts, row, shares in zip(examples.lines, examples.rows(), rows, outputs.tolist(), strict=True):
            cut_tokens, columns = self.cut_tokens(row), dict(zip((self.task.text, str(self.task.text_b)), texts, strict=False))
            cut = {"cut": cut_tokens} if cut_tokens else {}
            yield {"line": line, **cut, **columns, self.task.label: dict(zip(self.label_names, shares, strict=True))}


def decided(probabilities: NDArray[np.floating], threshold: float | None = None) -> NDArray[np.int64]:
    """The label of every row, from the probabilities (N, C): the most probable one (the first if equal), or with a `threshold`
    the second of two from that probability on. The comparison is in float64, because float32 would round the threshold."""
    chosen = probabilities.argmax(1) if threshold is None else probabilities[:, 1].astype(np.float64) >= threshold
    return chosen.astype(np.int64)


@register("task", "sentence_classification")
def sentence_classification(
    text: str = "text", label: str = "label", picture: str | None = None, at: Sequence[int] = (), threshold: float | None = None
) -> Classification:
    """The class of a text: sentiment, topic, acceptability. The arguments are names of columns; `at` and `threshold`: see
    `Classification`."""
    return Classification(text, None, label, picture=picture, at=ks_of(at), threshold=threshold)


@register("task", "pair_classification")
def pair_classification(
    text: str = "text", text_b: str = "text_b", label: str = "label", picture: str | None = None, at: Sequence[int] = (),
    threshold: float | None = None,
) -> Classification:
    """The relation of two texts: entailment, paraphrase. The arguments are names of columns; `at` and `threshold`: see
    `Classification`."""
    return Classification(text, text_b, label, picture=picture, name="pair_classification", at=ks_of(at), threshold=threshold)
