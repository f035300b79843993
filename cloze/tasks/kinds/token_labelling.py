"""Label the words of a text: parts of speech, names, chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.corpus.readers.labelled import UNTRAINED, Format, Quoting, Trained
from cloze.corpus.readers.tagged import TaggedSentences, read_tagged
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.errors import TaskError, propose
from cloze.registry import register
from cloze.schemes import Repair, breaks, closes, in_form, spans, standard
from cloze.tasks.linear.linear_words import LinearLabelling
from cloze.tasks.measures.class_report import ClassCounts, Confusion
from cloze.tasks.measures.metrics import METRICS, confusion
from cloze.tasks.measures.spans import SpanCounts, counts_by_kind, f1_of, span_counts
from cloze.tasks.pictures import keys_of, picture_numbers, with_picture
from cloze.tasks.remarks import NONE_KNOWN
from cloze.tasks.task import LabelledRow, PerExample, Prediction, Report, Task, require_head, silent
from cloze.tasks.texts import names_of_numbers, remark_on_numbers
from cloze.tasks.words import Positions, WordsLearner, WordsRow, WordWindow, word_windows
from cloze.text.matching import Span

#: What is measured: all of it is better when there is more.
NAMES = ("span_f1", "accuracy", "macro_f1")
RULES: dict[Repair, str] = {
    "begin": "begin: a label that continues nothing begins a span, as conlleval has it",
    "drop": "drop: only spans that are written as the scheme has them count",
}
_SHOWN = 8  # of the labels that training never saw, the most frequent


@dataclass(frozen=True)
class TokenLabelling(Task):
    """Which columns hold a word and its label, and which spans labels mean that break their scheme. `picture` is the column with
    the key of the picture that a text is about, in JSON lines; `trained` is what the model of a folder was trained on."""

    text: str = "text"
    label: str = "label"
    repair: Repair = "begin"
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    picture: str | None = None
    trained: Trained = UNTRAINED
    name: str = "token_labelling"
    pipeline: ClassVar[str | None] = "token-classification"
    instead_of_text: ClassVar[str] = "labels words"
    of_words: ClassVar[bool] = True  # a text may be a list of its words
    writes: ClassVar[tuple[str, ...]] = ("conll",)
    metrics: ClassVar[Mapping[str, bool]] = dict.fromkeys(NAMES, True)

    def for_files(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> TokenLabelling:
        """The same task for files in another format."""
        if quoting == "standard":
            raise TaskError("--quoting standard: in texts of labelled words a quote is a word like any other. Leave it out.")
        return replace(self, columns=tuple(columns) if columns else None, format=format)

    def read(self, path: Path | str, *, labelled: bool = True) -> TaggedSentences:
        """The texts of a file."""
        tagged = read_tagged(
            path, text=self.text, label=self.label, columns=self.columns, format=self.format, labelled=labelled,
            trained=self.trained,
        )
        return replace(tagged, pictures=keys_of(path, tagged.lines, self.picture, self.format))

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> WordLabeller:
        """What labels words, of a fine-tuned folder."""
        name = task_json["head"] or "sequence_labelling"  # of a folder that transformers wrote: the part
        return WordLabeller(
            Reader.of(loaded), require_head(loaded, name), self, constant_answer=task_json["constant_answer"],
            labels=task_json["labels"], length=task_json.get("length"), numbered=bool(task_json.get("numbered")),
            ideographs=task_json.get("ideographs"),
        )

    def truth(self, examples: TaggedSentences, labels: Sequence[str], *, numbered: bool = False) -> list[tuple[str, ...]]:
        """The labels of the words of every text; one that is not known can be measured, but not learned."""
        assert examples.labels is not None  # read with labels
        names = names_of_numbers(chain.from_iterable(examples.labels), labels, numbered=numbered)
        return [tuple(names.get(label, label) for label in row) for row in examples.labels]

    def per_example(self, truth: Any, outputs: Sequence[Sequence[str]], labels: Sequence[str]) -> list[JudgedText]:
        """What the metrics need of every text, from its labels and the predicted ones."""
        return per_example(truth, outputs, repair=self.repair, **scheme_of(labels))

    def compute_metrics(self, per_example: Sequence[JudgedText], labels: Sequence[str]) -> dict[str, float]:
        """See the function `compute_metrics`."""
        return compute_metrics(per_example)

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one label."""
        return measured(truth, [(constant_answer,) * len(text_labels) for text_labels in truth])

    def linear(self, labels: Sequence[str] = ()) -> LinearLabelling | None:
        """The label by a word's letters, its shape and its neighbours; none if texts are about pictures."""
        return None if self.picture is not None else LinearLabelling(self, labels)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": with_picture({"text": self.text, "label": self.label}, self.picture)}


@register("task", "token_labelling")
def token_labelling(
    text: str = "text", label: str = "label", repair: str = "begin", picture: str | None = None
) -> TokenLabelling:
    """The label of each word of a text: parts of speech, names. `text`, `label` and `picture` name columns.

    `repair` says which spans labels mean that break their scheme, when spans are counted: see `Repair`.
    """
    rules: dict[str, Repair] = {"begin": "begin", "drop": "drop"}
    if repair not in rules:
        raise TaskError(f"--repair {repair}: unknown rule. {propose(repair, rules)}")
    return TokenLabelling(text, label, rules[repair], picture=picture)


@dataclass(frozen=True)
class Entity:
    """Words that belong together: their kind, their text, its characters, the lowest probability of its words."""

    label: str
    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class LabelsOfWords(Prediction):
    """The words of one text, the line it begins at, the label of each and how probable that is.

    `text` is the text itself, or the words with spaces between them, and `offsets` are begin and end of each word in it, in
    characters. `entities`: None where labels are of no scheme, such as parts of speech.
    """

    line: int
    words: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    text: str
    offsets: tuple[Span, ...]
    entities: tuple[Entity, ...] | None

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        record = dict(vars(self))
        entities = record.pop("entities")
        return record if entities is None else {**record, "entities": [dict(vars(entity)) for entity in entities]}

    def written_as(self, format: str | None) -> str | None:
        """As CoNLL, a word and its label a line."""
        lines = [f"{word}\t{label}\n" for word, label in zip(self.words, self.labels, strict=True)]
        return "".join([*lines, "\n"]) if format == "conll" else None

    def word_rows(self) -> list[dict[str, Any]]:
        """The words as rows of a table."""
        return [
            {"line": self.line, "word": word, "label": label, "probability": probability, "start": start, "end": end}
            for word, label, probability, (start, end) in zip(
                self.words, self.labels, self.probabilities, self.offsets, strict=True
            )
        ]


def entities_of(
    text: str, offsets: Sequence[Span], labels: Sequence[str], probabilities: Sequence[float], *, repair: Repair, closed: bool
) -> tuple[Entity, ...]:
    """The names of a text, in their order.

    >>> places, labels = [(0, 2), (3, 6), (7, 11)], ["O", "B-LOC", "I-LOC"]
    >>> entities_of("in New Bern", places, labels, [1.0, 0.9, 0.8], repair="begin", closed=False)
    (Entity(label='LOC', text='New Bern', start=3, end=11, probability=0.8),)
    """
    entities = []
    for first, stop, kind in sorted(spans(labels, repair=repair, closed=closed)):
        start, end = offsets[first][0], offsets[stop - 1][1]
        entities.append(Entity(kind, text[start:end], start, end, min(probabilities[first:stop])))
    return tuple(entities)


class PredictedLabels(NamedTuple):
    """The label of each word of a text, and how probable it is (0 where the word was not read)."""

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]


class WordLabeller(WordsLearner):
    """A reader with a head over `labels`, which reads a text in windows.

    A word of which the tokenizer leaves no token gets `constant_answer`, the most frequent label of the training texts, unless
    the head labels a text as a whole.
    """

    def __init__(self, reader: Reader, head: nn.Module, task: Any, *, constant_answer: str, **options: Any) -> None:
        super().__init__(reader, head, task, **options)
        self.constant_answer, self.scheme = constant_answer, scheme_of(self.label_names)

    def windows(self, examples: TaggedSentences, words: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The windows of the words of some texts; a head of transformers answers where transformers asks it."""
        return word_windows(self.reader, words, self.length, picture_numbers(self.reader, examples), spaced=self.numbered)

    @torch.inference_mode()
    def row_outputs(
        self, rows: Sequence[WordsRow], size: int = 64, report: Report = silent, linear: Sequence[NDArray[Any]] | None = None
    ) -> list[PredictedLabels]:
        """The labels of all words of each text with their probabilities.

        `linear` are the probabilities (words, C) of a linear model for each text, which is mixed with the network, and answers
        alone for words that are not read.
        """
        predictions: list[Any] = [None] * len(rows)
        with evaluating(self):
            for index, counts, scores, read in self.scores(rows, len(self.label_names), size):
                if linear is not None and self.mixture is not None:
                    scores = self.mixture.word_scores(scores, [linear[i] for i in index])
                    read = np.ones_like(read)
                which, shares = self.head.decided(scores, torch.tensor(counts), self.label_names)
                parts = (np.split(array, np.cumsum(counts)[:-1]) for array in (which.numpy(), shares.numpy(), read))
                for i, *labelled in zip(index, *parts, strict=True):
                    predictions[i] = self._named(*labelled)
                report(len(index))
        return predictions

    def _named(self, which: NDArray[Any], shares: NDArray[Any], read: NDArray[np.bool_]) -> PredictedLabels:
        mask = read | self.head.chained
        labels = tuple(self.label_names[n] if k else self.constant_answer for n, k in zip(which, mask, strict=True))
        return PredictedLabels(labels, tuple(round(float(p), 6) if k else 0.0 for p, k in zip(shares, mask, strict=True)))

    def mixed_outputs(
        self, examples: TaggedSentences, rows: Sequence[WordsRow], size: int, report: Report
    ) -> list[PredictedLabels]:
        """The labels by the network, or by its mixture with the linear model."""
        if self.mixture is None:
            return self.row_outputs(rows, size, report)
        linear = self.mixture.linear.outputs(replace(examples, words=[row.words for row in rows]))
        return self.row_outputs(rows, size, report, linear)

    @torch.inference_mode()
    def network_outputs(
        self, examples: TaggedSentences, *, size: int = 64, report: Report = silent
    ) -> list[NDArray[np.float32]]:
        """The probabilities (words, C) that the network gives to the labels of each word, without the moves of a random field."""
        rows = self.rows(examples)
        shares: list[Any] = [None] * len(rows)
        with evaluating(self):
            for index, counts, scores, _ in self.scores(rows, len(self.label_names), size):
                parts = np.split(scores.float().softmax(-1).cpu().numpy(), np.cumsum(counts)[:-1])
                for i, part in zip(index, parts, strict=True):
                    shares[i] = part
                report(len(index))
        return shares

    def per_example_of(self, rows: Sequence[LabelledRow], outputs: Sequence[PredictedLabels]) -> PerExample:
        return super().per_example_of(rows, [predicted.labels for predicted in outputs])

    def truth_and_predictions(self, per_example: Sequence[JudgedText]) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The labels of all words and the predicted ones."""
        if not per_example:
            return None
        truth, guess = np.concatenate([text.labels for text in per_example], axis=1)
        return truth, guess

    def baseline(self, constant_answer: str | None, examples: TaggedSentences) -> dict[str, Any] | None:
        """The metrics of always giving one label, by the task's rule for labels that break their scheme."""
        if constant_answer is None:
            return None
        truth = self.truth(examples)
        predictions = [(constant_answer,) * len(labels) for labels in truth]
        return {"always": constant_answer, **measured(truth, predictions, repair=self.task.repair)}

    def remarks(self, examples: TaggedSentences, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """Which labels were given by their numbers, were never seen in training or break their scheme, and how many words were
        not read."""
        file_labels = chain.from_iterable(examples.labels or ())
        remarks = remark_on_numbers(names_of_numbers(file_labels, self.label_names, numbered=self.numbered))
        unread = sum(len(row.truth) - sum(len(window.words) for window in row.inputs.windows) for row in rows)
        if unread and self.mixture is None:
            how = "by their neighbours" if self.head.chained else repr(self.constant_answer)
            remarks.append(f"{unread} words of which the tokenizer leaves nothing were labelled {how}")
        unknown = Counter(label for row in rows for label in row.truth if label not in self.label_names)
        if unknown and unknown.total() == sum(len(row.truth) for row in rows):
            remarks.append(NONE_KNOWN)
        if unknown:
            counts = ", ".join(f"{label} ({number})" for label, number in unknown.most_common(_SHOWN))
            more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            remarks.append(f"labels that training never saw are never right: {counts}{more}")
        closed, forms = self.scheme["closed"], self.scheme["forms"]
        broken = [
            sum(len(breaks(in_form(labels, forms), closed=closed)) for labels in side)
            for side in ([row.truth for row in rows], [predicted.labels for predicted in outputs])
        ]
        if any(broken):
            remarks.append(
                f"{broken[0]} labels of the file and {broken[1]} of the answers break the scheme; the rule is "
                f"{RULES[self.task.repair]}"
            )
        return remarks

    def details(self, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> dict[str, Any]:
        """See `label_figures`."""
        guess = [predicted.labels for predicted in outputs]
        return label_figures([row.truth for row in rows], guess, repair=self.task.repair, **self.scheme)

    def predictions(self, examples: TaggedSentences, rows: Sequence[WordsRow], outputs: Any) -> list[LabelsOfWords]:
        """The most probable label of every word, its place in the text, and the names that the labels make."""
        closed, forms = self.scheme["closed"], self.scheme["forms"]
        schemed = any(label.startswith(("B-", "I-")) for label in in_form(self.label_names, forms))
        predictions = []
        for line, row, predicted in zip(examples.lines, rows, outputs, strict=True):
            labels, shares = in_form(predicted.labels, forms), predicted.probabilities
            entities = entities_of(
                row.text, row.offsets, labels, shares, repair=self.task.repair, closed=closed
            ) if schemed else None  # fmt: skip
            predictions.append(LabelsOfWords(line, row.words, predicted.labels, shares, row.text, tuple(row.offsets), entities))
        return predictions


def scheme_of(labels: Sequence[str]) -> dict[str, Any]:
    """The standard forms of labels (`forms`), and whether these say where a span ends (`closed`)."""
    forms = standard(labels)
    return {"closed": closes(in_form(labels, forms)), "forms": forms}


class JudgedText(NamedTuple):
    """The labels of one text's words and those that were found, as numbers (2, K), and its spans."""

    labels: Positions
    spans: SpanCounts


def per_example(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], *, repair: Repair = "begin", closed: bool = False,
    forms: Mapping[str, str] = MappingProxyType({}),
) -> list[JudgedText]:
    """What the metrics need of every text; `forms` are the standard forms of labels."""
    number = {label: n for n, label in enumerate(sorted({label for side in (truth, guess) for row in side for label in row}))}
    texts = []
    for expected, predicted in zip(truth, guess, strict=True):
        codes = np.array([[number[label] for label in side] for side in (expected, predicted)], np.int64).reshape(2, -1)
        schemed = (in_form(side, forms) for side in (expected, predicted))
        texts.append(JudgedText(codes, span_counts(*schemed, repair=repair, closed=closed)))
    return texts


def label_figures(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], *, repair: Repair, closed: bool,
    forms: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """What an `Evaluation` holds about labels: fields by name. Where labels form spans, `report` is about the kinds of these."""
    sides = ([in_form(labels, forms) for labels in side] for side in (truth, guess))
    kinds, spans = counts_by_kind(*sides, repair=repair, closed=closed)
    tags = sorted({label for side in (truth, guess) for labels in side for label in labels})
    number = {tag: index for index, tag in enumerate(tags)}
    true, predicted = (np.array([number[label] for labels in side for label in labels], np.int64) for side in (truth, guess))
    counts = confusion(true, predicted, len(tags))
    schemed = not set(tags) - {"O"} <= set(kinds)
    return {
        "by_class": spans.rows(kinds), "averages": spans.averages(), "confusion": Confusion.of(tags, counts),
        "tags": ClassCounts.of_confusion(counts).rows(tags) if schemed else (),
    }


def compute_metrics(per_example: Sequence[JudgedText]) -> dict[str, float]:
    """F1 of spans, and accuracy and macro-F1 over words."""
    true, guessed = np.concatenate([text.labels for text in per_example], axis=1)
    counts = confusion(true, guessed, int(max(true.max(initial=0), guessed.max(initial=0))) + 1)
    return {"span_f1": f1_of(text.spans for text in per_example), **{name: METRICS[name](counts) for name in NAMES[1:]}}


def measured(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], *, repair: Repair = "begin"
) -> dict[str, float]:
    """F1 of spans, and accuracy and macro-F1 over words, of labels and those that were found."""
    forms = standard(label for side in (truth, guess) for labels in side for label in labels)
    return compute_metrics(per_example(truth, guess, repair=repair, forms=forms))
