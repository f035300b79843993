"""Classify marked spans of a text: how files are read, what predicts, and the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.marked_texts import Marked, MarkedTexts, TextFields, read_marked
from cloze.corpus.records.span_marks import mark_ids, marks_around, with_marks
from cloze.corpus.records.spans import tokens_of
from cloze.decoding.layout import Framed
from cloze.decoding.marks import CHARACTERS
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Classes
from cloze.tasks.linear.features import Bags, prefixed
from cloze.tasks.linear.linear_task import LinearTask
from cloze.tasks.measures.class_report import class_figures
from cloze.tasks.measures.metrics import confusion, macro_f1
from cloze.tasks.pictures import keys_of, picture_numbers, with_picture
from cloze.tasks.task import LabelledRow, Learner, Prediction, Report, first_columns, require_head, silent
from cloze.tasks.texts import ObjectTask, label_numbers
from cloze.text.tokenizer import Spelled

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class SpanClassification(ObjectTask):
    """A task: the fields of a text, its spans, and its label; `none` is the label that micro-F1 does not count, `marks` are the
    tokens around the spans."""

    text: str = "text"
    label: str = "label"
    spans: str = "spans"
    none: str | None = None
    marks: Sequence[str] | None = None
    name: str = "span_classification"
    one_text: ClassVar[bool] = False
    instead_of_text: ClassVar[str] = "chooses a label"
    metrics: ClassVar[Mapping[str, bool]] = {"accuracy": True, "macro_f1": True, "micro_f1": True}

    def read(self, path: Path | str, *, labelled: bool = True) -> MarkedTexts:
        """The texts of a file."""
        marked = read_marked(path, TextFields(self.text, self.spans, self.label), labelled=labelled)
        return replace(marked, pictures=keys_of(path, [text.line for text in marked.each], self.picture))

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> SpanClassifier:
        """What classifies spans, from a fine-tuned folder."""
        return SpanClassifier(
            Reader.of(loaded), require_head(loaded, str(task_json["head"])), self,
            length=task_json.get("length"), labels=task_json["labels"], constant_answer=task_json["constant_answer"],
        )

    def truth(self, examples: MarkedTexts, labels: Sequence[str], *, numbered: bool = False) -> Int64:
        """The numbers of the labels of all texts."""
        lines, names = [marked.line for marked in examples.each], [[str(marked.label)] for marked in examples.each]
        return np.array(label_numbers(examples.path, lines, names, labels), np.int64).reshape(-1)

    def per_example(self, truth: Any, outputs: Any, labels: Sequence[str]) -> Int64:
        """The label of every text and the likeliest one, (N, 2)."""
        return np.stack([np.array(truth, np.int64), outputs.argmax(1).astype(np.int64)], axis=1)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """See `span_metrics`."""
        truth, guess = np.asarray(per_example, np.int64).reshape(-1, 2).T
        return span_metrics(truth, guess, labels, self.none)

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label."""
        return span_metrics(truth, np.full_like(truth, list(labels).index(constant_answer)), labels, self.none)

    def linear(self, labels: Sequence[str] = ()) -> LinearSpans | None:
        """The class by the words of the spans, between them and around them; none if texts are about pictures."""
        return None if self.picture is not None else LinearSpans(self, labels)

    def description(self) -> dict[str, Any]:
        """The names of the fields, the label that does not count, and the marks."""
        columns = {"text": self.text, "label": self.label, "spans": self.spans}
        marks = {} if self.marks is None else {"marks": list(self.marks)}
        return {"columns": with_picture(columns, self.picture), "none": self.none, **marks}


@register("task", "span_classification")
def span_classification(
    text: str = "text", label: str = "label", spans: str = "spans", none: str | None = None,
    marks: Sequence[str] | None = None, picture: str | None = None,
) -> SpanClassification:
    """The class of one or two marked spans: the relation of two names, the sense of a word, the type of an entity.

    `text`, `label`, `spans` and `picture` name fields; `none` is the label that says "none of them": micro-F1 does not count it.
    `marks` are tokens of the vocabulary, one for each span, that stand before and after it.
    """
    return SpanClassification(text, label, spans, none, marks, picture=picture)


def span_metrics(truth: Int64, guess: Int64, labels: Sequence[str], none: str | None) -> dict[str, float]:
    """Accuracy, macro-F1, and F1 over all answers together (micro) but for the label `none`, without which it is accuracy."""
    if not len(truth):
        raise TaskError("no labelled examples to measure on.")
    counts = confusion(truth, guess, len(labels))
    mask = np.array([label != none for label in labels])
    right, total = float(np.diag(counts)[mask].sum()), float(counts[mask].sum() + counts[:, mask].sum())
    return {
        "accuracy": float(np.trace(counts) / counts.sum()), "macro_f1": macro_f1(counts),
        "micro_f1": 2 * right / total if total else 0.0,
    }


class LinearSpans(LinearTask):
    """A linear model of the class of marked spans."""

    @property
    def estimator(self) -> Classes:
        """Multinomial logistic regression."""
        return Classes(len(self.labels))

    def labels_of(self, examples: MarkedTexts) -> tuple[str, ...]:
        """The labels, sorted."""
        return tuple(sorted({str(marked.label) for marked in examples.each}))

    def texts(self, examples: MarkedTexts) -> Iterable[str]:
        """The texts."""
        return (marked.text for marked in examples.each)

    def bags(self, examples: MarkedTexts, cutter: Cutter) -> Iterator[Bags]:
        """The n-grams of the whole text, of each span, and of the text before, between and after the spans."""
        for marked in examples.each:
            words, characters = list(cutter.words(marked.text)), list(cutter.characters(marked.text))
            for name, part in _parts_of(marked):
                words += prefixed(f"{name}:", cutter.words(part))
                characters += prefixed(f"{name}:", cutter.characters(part))
            yield words, characters


def _parts_of(marked: Marked) -> Iterator[tuple[str, str]]:
    """The spans of a text in the order of their roles, and what is before, between and after them, with the first span's role in
    the order of the text."""
    order = sorted(range(len(marked.spans)), key=lambda number: marked.spans[number])
    for number, (begin, end) in enumerate(marked.spans):
        yield f"span {number}", marked.text[begin:end]
    at = 0
    for index, (begin, end) in enumerate([*(marked.spans[number] for number in order), (len(marked.text), len(marked.text))]):
        yield f"part {index} of {order[0]} first", marked.text[at : max(begin, at)]
        at = max(end, at)


@dataclass(frozen=True)
class SpanRow:
    """A framed text and the columns of the first and the last token of each of its spans, -1 for a span that is not read."""

    marked: Marked
    framed: Framed
    columns: Int64

    @property
    def read(self) -> bool:
        """Whether all spans are."""
        return bool((self.columns >= 0).all())

    def __len__(self) -> int:
        return len(self.framed)


@dataclass(frozen=True)
class SpanChoice(Prediction):
    """The label of the spans of one text, and how probable every label is; of spans that were not read only the most
    frequent label."""

    marked: Marked
    label: str
    probability: float
    probabilities: dict[str, float]

    def record(self) -> dict[str, Any]:
        """The JSON object of it: each span with its text and characters."""
        text = self.marked.text
        spans = [{"text": text[start:stop], "start": start, "end": stop} for start, stop in self.marked.spans]
        return {
            "line": self.marked.line, "text": text, "spans": spans, "label": self.label, "probability": self.probability,
            "probabilities": self.probabilities,
        }


class SpanClassifier(Learner):
    """A reader with a head over `labels`. Spans that are cut away get `constant_answer`, the most frequent label of the training
    texts."""

    def __init__(self, reader: Reader, head: Any, task: Any, *, constant_answer: str, **options: Any) -> None:
        super().__init__(reader, head, task, **options)
        self.constant_answer = constant_answer

    def texts_of(self, examples: MarkedTexts) -> Sequence[str]:
        """The texts with the spans."""
        return [marked.text for marked in examples.each]

    def encode(self, examples: MarkedTexts) -> list[SpanRow]:
        """The texts as the network reads them, with the positions of their spans."""
        texts = [text.text for text in examples.each]
        spelled = self.reader.tokenizer.encode_spelled(texts)
        pictures = picture_numbers(self.reader, examples)
        spans = []
        for number, marked in enumerate(examples.each):
            if len(marked.spans) != self.head.spans:
                raise TaskError(
                    f"{examples.path}:{marked.line}: {len(marked.spans)} spans; this model was trained with {self.head.spans} "
                    "per text."
                )
            spans.append(np.array([tokens_of(spelled, number, *span) or (-1, -1) for span in marked.spans], np.int64))
        rows = self.reader.encode(texts, max_length=self.length) if self.task is None or self.task.marks is None else (
            self._with_marks(texts, spelled, spans)
        )  # fmt: skip
        span_rows = []
        for number, (marked, framed) in enumerate(zip(examples.each, rows, strict=True)):
            columns = np.append(np.flatnonzero(framed.part == 0), -1)
            tokens = spans[number].ravel()
            framed = replace(framed, picture=pictures[number])
            span_rows.append(SpanRow(
                marked, framed, np.where(tokens < len(columns) - 1, columns[np.minimum(tokens, len(columns) - 1)], -1)
            ))  # fmt: skip
        return span_rows

    def _with_marks(self, texts: Sequence[str], spelled: Spelled, spans: list[Int64]) -> list[Framed]:
        """The texts with the marks around their `spans`, which are moved behind these."""
        ids = mark_ids(self.reader.tokenizer, self.task.marks)
        bound = min((limit for limit in (self.length, self.reader.max_length) if limit is not None), default=None)
        rows = []
        for number, layers in enumerate(self.reader.marks(texts)):
            tokens = spelled.ids[int(spelled.offsets[number]) : int(spelled.offsets[number + 1])]
            if (spans[number] >= 0).all():
                marks = marks_around(spans[number], ids)
                tokens, spans[number] = np.insert(tokens, marks.places, marks.ids), marks.spans
                layers = {
                    name: np.insert(values, marks.places, 0, axis=0) if name == CHARACTERS
                    else with_marks(values, layers["layers/" + name.partition("/")[2]], marks.places)
                    for name, values in layers.items()
                }
            rows.append(self.reader.lay_out([tokens], max_length=bound).marked([layers]))
        return rows

    @torch.inference_mode()
    def row_outputs(self, rows: Sequence[SpanRow], size: int = 64, report: Report = silent) -> NDArray[np.float32]:
        """The probability of each label for every row, (N, C): the constant_answer one is sure where a span is not read."""
        probabilities = np.zeros((len(rows), len(self.label_names)), np.float32)
        probabilities[:, self.label_names.index(self.constant_answer)] = 1.0
        with evaluating(self):
            for index in self.reader.batches([len(row) for row in rows], rows=size):
                indices = [i for i in index if rows[i].read]
                if indices:
                    batch = self.reader.batch([rows[i].framed for i in indices])
                    states = self.reader.states(batch, self.head.reads)
                    width = batch["tokens"].shape[1]
                    positions = np.stack([rows[i].columns + number * width for number, i in enumerate(indices)])
                    scores = self.reader.scores(self.head, states, batch, torch.from_numpy(positions).to(self.reader.device))
                    probabilities[indices] = scores.softmax(-1).cpu().numpy()
                report(len(index))
        return probabilities

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The first two columns."""
        return first_columns(per_example)

    def remarks(self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """How many texts have spans that were not read."""
        lost = [row.inputs.marked.line for row in rows if not row.inputs.read]
        return [] if not lost else [
            f"{len(lost)} of {len(rows)} texts lose a span by truncation, the first in line {lost[0]}, and got the label "
            f"{self.constant_answer!r} (fine-tune with --set length=N to read more)"
        ]  # fmt: skip

    def details(self, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> dict[str, Any]:
        """The figures by class, confusions, calibration and, of two classes, the ranking."""
        return class_figures(per_example[:, 0], per_example[:, 1], outputs, self.label_names)

    def predictions(self, examples: MarkedTexts, rows: Sequence[SpanRow], outputs: Any) -> list[SpanChoice]:
        """The most probable label of every text's spans."""
        choices = []
        for row, shares in zip(rows, outputs, strict=True):
            best = int(shares.argmax())
            by_label = {label: round(float(p), 6) for label, p in zip(self.label_names, shares, strict=True)}
            choices.append(SpanChoice(row.marked, self.label_names[best], round(float(shares[best]), 6), by_label))
        return choices
