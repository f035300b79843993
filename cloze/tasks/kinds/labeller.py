"""A network that reads texts and a head that labels their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.corpus.readers.tagged import Tagged
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Reader, evaluating
from cloze.schemes import Repair, breaks, closes, in_form, standard
from cloze.tasks.kinds.entities import LabelsOfWords, entities_of
from cloze.tasks.labels import names_of_numbers, remark_on_numbers
from cloze.tasks.measures.class_report import ClassCounts, Confusion
from cloze.tasks.measures.metrics import METRICS, confusion
from cloze.tasks.measures.spans import Counts, counts_by_kind, f1_of, span_counts
from cloze.tasks.pictures import numbers_of
from cloze.tasks.task import Evaluation, Learner, Report
from cloze.tasks.words import Positions, WordWindow, read_words, word_windows
from cloze.text.matching import Span
from cloze.text.running import as_text, remark_on_units, word_spans

#: What is measured: all of it is better when there is more.
NAMES = ("span_f1", "accuracy", "macro_f1")
RULES: dict[Repair, str] = {
    "begin": "begin: a label that continues nothing begins a span, as conlleval has it",
    "drop": "drop: only spans that are written as the scheme has them count",
}
_SHOWN = 8  # of the labels that training never saw, the most frequent


@dataclass(frozen=True)
class LabelledWords:
    """A text with its labels, in windows."""

    labels: tuple[str, ...]
    windows: Sequence[WordWindow] = ()


class PredictedLabels(NamedTuple):
    """The label of each word of a text, and how probable it is (0 where the word was not read)."""

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]


class WordLabeller(Learner):
    """A reader with a head over `labels`, which reads a text in windows.

    A word of which the tokenizer leaves no token gets `usual`, the most frequent label of the training texts, unless the head
    labels a text as a whole. `numbered`: files may give the labels by their numbers. `ideographs`: how many a word of training
    had that is written in them.
    """

    def __init__(
        self, reader: Reader, head: nn.Module, labels: Sequence[str], usual: str, task: Any, *, length: int | None,
        numbered: bool = False, ideographs: float | None = None,
    ) -> None:
        super().__init__(reader, head, task, length=length)
        self.numbered, self.ideographs = numbered, ideographs
        self.usual = usual
        self.names = tuple(labels)
        self.labels = self.names
        self.forms = standard(self.names)
        self.closed = closes(in_form(self.names, self.forms))

    def answered(self, examples: Tagged) -> list[LabelledWords]:
        """The texts with their labels; one that is not known can be measured, but not learned."""
        assert examples.labels is not None  # read with labels
        names = self._named_by_number(examples)
        windows = self._windows(examples, examples.words)
        labels = [tuple(names.get(label, label) for label in row) for row in examples.labels]
        return [LabelledWords(*row) for row in zip(labels, windows, strict=True)]

    def _windows(self, examples: Tagged, words: Sequence[Sequence[str]]) -> list[list[WordWindow]]:
        """The windows of the words of some texts; a head of transformers answers where transformers asks it."""
        return word_windows(self.reader, words, self.length, numbers_of(self.reader, examples), spaced=self.numbered)

    def _named_by_number(self, examples: Tagged) -> dict[str, str]:
        """The labels that a file gives by their numbers."""
        return names_of_numbers(chain.from_iterable(examples.labels or ()), self.names, numbered=self.numbered)

    @torch.inference_mode()
    def decode(
        self, texts: Sequence[Sequence[WordWindow]], counts: Sequence[int], *, size: int = 64,
        linear: Sequence[NDArray[Any]] | None = None, report: Report = lambda done: None,
    ) -> list[PredictedLabels]:
        """The labels of all words of each text with their probabilities; runs in eval mode.

        `texts` are the windows of each text and `counts` its words. `linear` are the probabilities (words, C) of a linear model
        for each text, which is mixed with the network, and answers alone for words that are not read.
        """
        predictions: list[Any] = [None] * len(texts)
        with evaluating(self):
            for index in by_length(counts, rows=size):
                word_counts = [counts[i] for i in index]
                scores, read = read_words(
                    self.exact, self.head, [texts[i] for i in index], word_counts, width=len(self.names), size=size
                )
                if linear is not None and self.mixture is not None:
                    scores = self.mixture.word_scores(scores, [linear[i] for i in index])
                    read = np.ones_like(read)
                sizes = torch.tensor(word_counts)
                which, shares = self.head.decided(scores, sizes, self.names)
                bounds = np.cumsum(sizes.numpy())[:-1]
                parts = (np.split(array, bounds) for array in (which.numpy(), shares.numpy(), read))
                for i, *answer in zip(index, *parts, strict=True):
                    predictions[i] = self._named(*answer)
                report(len(index))
        return predictions

    def _named(self, which: NDArray[Any], shares: NDArray[Any], read: NDArray[np.bool_]) -> PredictedLabels:
        mask = read | self.head.chained
        labels = tuple(self.names[n] if k else self.usual for n, k in zip(which, mask, strict=True))
        return PredictedLabels(labels, tuple(round(float(p), 6) if k else 0.0 for p, k in zip(shares, mask, strict=True)))

    def judge(
        self, rows: Sequence[LabelledWords], metric: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> list[JudgedText]:
        """The labels of every text and those that were found."""
        guess = self._guessed(rows, size, report)
        return judged([row.labels for row in rows], guess, repair=self.task.repair, closed=self.closed, forms=self.forms)

    def _guessed(
        self, rows: Sequence[LabelledWords], size: int, report: Report, linear: Sequence[NDArray[Any]] | None = None
    ) -> list[tuple[str, ...]]:
        counts = [len(row.labels) for row in rows]
        predicted = self.decode([row.windows for row in rows], counts, size=size, linear=linear, report=report)
        return [answer.labels for answer in predicted]

    def _linear(self, examples: Tagged, words: Sequence[Sequence[str]]) -> list[NDArray[Any]] | None:
        """The probabilities (words, C) of the linear model for the words of each text; None if none is mixed."""
        if self.mixture is None:
            return None
        shares: list[NDArray[Any]] = self.mixture.linear.outputs(replace(examples, words=[tuple(row) for row in words]))
        return shares

    @torch.inference_mode()
    def outputs(
        self, examples: Tagged, *, size: int = 64, report: Report = lambda done: None
    ) -> list[NDArray[np.float32]]:
        """The probabilities (words, C) that the network gives to the labels of each word, without the moves of a random field."""
        texts, counts = self._windows(examples, examples.words), [len(words) for words in examples.words]
        shares: list[Any] = [None] * len(texts)
        with evaluating(self):
            for index in by_length(counts, rows=size):
                sizes = [counts[i] for i in index]
                scores, _ = read_words(self.exact, self.head, [texts[i] for i in index], sizes, width=len(self.names), size=size)
                split = np.split(scores.float().softmax(-1).cpu().numpy(), np.cumsum(sizes)[:-1])
                for i, part in zip(index, split, strict=True):
                    shares[i] = part
                report(len(index))
        return shares

    def texts_of(self, examples: Tagged) -> Sequence[str]:
        """The texts, with a space between words."""
        return [" ".join(words) for words in examples.words]

    def remarks_on_texts(self, examples: Tagged) -> list[str]:
        """Also on texts that are not given as words, if these are others than those of training."""
        units = remark_on_units(examples.running, self.ideographs)
        return [*super().remarks_on_texts(examples), *([] if units is None else [units])]

    def answers(self, judged: Sequence[JudgedText]) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The labels of all words and those that were found."""
        if not judged:
            return None
        truth, guess = np.concatenate([text.labels for text in judged], axis=1)
        return truth, guess

    def metrics(self, judged: Sequence[JudgedText]) -> dict[str, float]:
        """Every metric of texts that were judged."""
        return figures(judged)

    def evaluate(
        self, examples: Tagged, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """All metrics on labelled texts, and of each kind of span how well it is found.

        Words that were not read, labels that training never saw and labels that break their scheme are reported.
        """
        rows = self.answered(examples)
        truth = [row.labels for row in rows]
        guess = self._guessed(rows, size, report, self._linear(examples, examples.words))
        rule: dict[str, Any] = {"repair": self.task.repair, "closed": self.closed, "forms": self.forms}
        outcomes = judged(truth, guess, **rule)
        unread = sum(len(row.labels) - sum(len(window.words) for window in row.windows) for row in rows)
        unknown = Counter(label for row in rows for label in row.labels if label not in self.names)
        remarks = remark_on_numbers(self._named_by_number(examples))
        if unread and self.mixture is None:
            how = "by their neighbours" if self.head.chained else repr(self.usual)
            remarks.append(f"{unread} words of which the tokenizer leaves nothing were labelled {how}")
        if unknown:
            counts = ", ".join(f"{label} ({number})" for label, number in unknown.most_common(_SHOWN))
            more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            remarks.append(f"labels that training never saw are never right: {counts}{more}")
        broken = [
            sum(len(breaks(in_form(labels, self.forms), closed=self.closed)) for labels in side) for side in (truth, guess)
        ]
        if any(broken):
            remarks.append(
                f"{broken[0]} labels of the file and {broken[1]} of the answers break the scheme; the rule is "
                f"{RULES[self.task.repair]}"
            )
        baseline = None
        if always is not None:
            constant = [(always,) * len(labels) for labels in truth]
            baseline = {"always": always, **measured(truth, constant, repair=self.task.repair)}
        return Evaluation(
            len(rows), self.metrics(outcomes), baseline, tuple(remarks), judged=outcomes, **label_figures(truth, guess, **rule)
        )

    def predict(
        self, examples: Tagged, *, size: int = 64, report: Report = lambda done: None
    ) -> list[LabelsOfWords]:
        """The most probable label of every word, its place in the text, and the names that the labels make."""
        texts = [self._placed(*pair) for pair in zip(examples.words, examples.running or repeat(None), strict=False)]
        words = [tuple(text[begin:end] for begin, end in offsets) for text, offsets in texts]
        windows = self._windows(examples, words)
        counts = [len(row) for row in words]
        predicted = self.decode(windows, counts, size=size, linear=self._linear(examples, words), report=report)
        schemed = any(label.startswith(("B-", "I-")) for label in in_form(self.names, self.forms))
        predictions = []
        for line, text_words, (text, offsets), answer in zip(examples.lines, words, texts, predicted, strict=True):
            entities = None
            if schemed:
                labels = in_form(answer.labels, self.forms)
                entities = entities_of(
                    text, offsets, labels, answer.probabilities, repair=self.task.repair, closed=self.closed
                )
            predictions.append(LabelsOfWords(line, text_words, *answer, text, tuple(offsets), entities))
        return predictions

    def _placed(self, words: Sequence[str], running: str | None) -> tuple[str, list[Span]]:
        """A text and the characters of its words."""
        return as_text(words) if running is None else (running, word_spans(running, self.reader.tokenizer))

class JudgedText(NamedTuple):
    """The labels of one text's words and those that were found, as numbers (2, K), and its spans."""

    labels: Positions
    spans: Counts


def judged(
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
        "report": spans.rows(kinds), "averages": spans.averages(), "confusion": Confusion.of(tags, counts),
        "tags": ClassCounts.of_confusion(counts).rows(tags) if schemed else (),
    }


def figures(judged: Sequence[JudgedText]) -> dict[str, float]:
    """F1 of spans, and accuracy and macro-F1 over words."""
    true, guessed = np.concatenate([text.labels for text in judged], axis=1)
    counts = confusion(true, guessed, int(max(true.max(initial=0), guessed.max(initial=0))) + 1)
    return {"span_f1": f1_of(text.spans for text in judged), **{name: METRICS[name](counts) for name in NAMES[1:]}}


def measured(
    truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]], *, repair: Repair = "begin"
) -> dict[str, float]:
    """F1 of spans, and accuracy and macro-F1 over words, of labels and those that were found."""
    forms = standard(label for side in (truth, guess) for labels in side for label in labels)
    return figures(judged(truth, guess, repair=repair, forms=forms))
