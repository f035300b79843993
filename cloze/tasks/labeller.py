"""A network that reads texts and a head that labels their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.corpus.readers.tagged import Tagged
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Reader
from cloze.interop.model import Head as StoredHead
from cloze.tasks.classifier import HEAD, Head
from cloze.tasks.metrics import METRICS, confusion
from cloze.tasks.spans import f1_of, span_counts
from cloze.tasks.task import Evaluation, FramedRow, Report, evaluating
from cloze.tasks.trained import TrainedLearner

Places = NDArray[np.int64]

#: What is measured: all of it is better when there is more.
NAMES = ("span_f1", "accuracy", "macro_f1")
_SHOWN = 8  # of the labels that training never saw, the most frequent


@dataclass(frozen=True)
class LabelledWords(FramedRow):
    """A framed text; for each word the column where it is labelled (-1: it was not read), and its label."""

    columns: Places
    labels: tuple[str, ...]


@dataclass(frozen=True)
class LabelsOfWords:
    """The words of one text, the line it begins at, the label of each and how probable that is."""

    line: int
    words: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]

    def record(self) -> dict[str, Any]:
        """The JSON object of it."""
        return dict(self.__dict__)


def word_columns(reader: Reader, texts: Sequence[Sequence[str]], longest: int | None) -> list[tuple[Framed, Places]]:
    """Texts given as words, framed, and for each word the column of its first token (Devlin et al., 2019).

    -1 for a word of which nothing is left: it did not fit, or the tokenizer drops all of it.
    """
    joined = [" ".join(words) for words in texts]
    framed = reader.encode(joined, longest=longest)
    found = reader.tokenizer.encode_spelled(joined)
    made = []
    for number, (words, row) in enumerate(zip(texts, framed, strict=True)):
        own = slice(int(found.offsets[number]), int(found.offsets[number + 1]))
        sizes = np.array([len(word) for word in words], np.int64)
        begins = np.cumsum(sizes + 1) - sizes - 1
        first = np.searchsorted(found.end[own], begins, side="right")  # tokens that end behind where the word begins
        kept = np.flatnonzero(row.part == 0)
        beginning = np.append(found.begin[own], np.iinfo(np.int64).max)
        read = (first < len(kept)) & (beginning[first] < begins + sizes)
        made.append((row, np.where(read, np.append(kept, -1)[np.minimum(first, len(kept))], -1)))
    return made


class WordLabeller(TrainedLearner):
    """A reader with a head over `labels`; the loss is the mean over the words that were read and whose label is known.

    A word that was not read gets `usual`, the most frequent label of the training texts. `frozen`: the network is never trained
    and drops nothing.
    """

    def __init__(
        self, reader: Reader, head: Head, labels: Sequence[str], usual: str, task: Any, *, length: int | None, frozen: bool
    ) -> None:
        super().__init__(reader, head.objective, task, length=length)
        self.made, self.usual, self.frozen = head, usual, frozen
        self.names = tuple(labels)
        self.labels = self.names
        if frozen:
            self.network.requires_grad_(False)
            self.usual_rate = 1e-3  # everything that learns begins at random

    def train(self, mode: bool = True) -> WordLabeller:
        """The head learns, and the network unless it is frozen."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def answered(self, examples: Tagged) -> list[LabelledWords]:
        """The texts with their labels; one that is not known can be measured, but not learned."""
        assert examples.labels is not None  # read with labels
        pairs = zip(self._asked(examples), examples.labels, strict=True)
        return [LabelledWords(framed, columns, labels) for (framed, columns), labels in pairs]

    def loss(self, rows: Sequence[LabelledWords]) -> torch.Tensor:
        """The mean loss of the words."""
        known = {name: number for number, name in enumerate(self.names)}
        framed = [row.framed for row in rows]
        batch = self.reader.batch(framed)
        width = batch["tokens"].shape[1]
        asked = [
            (number * width + int(column), known[label])
            for number, row in enumerate(rows)
            for column, label in zip(row.columns, row.labels, strict=True)
            if column >= 0 and label in known
        ]
        places, targets = torch.tensor(asked, dtype=torch.long, device=self.reader.device).reshape(-1, 2).unbind(1)
        states = self.states(self.reader, framed, batch, self.head.reads)
        answers = {f"places/{self.head.set}": places, f"targets/{self.head.set}": targets}
        with self.reader.autocast():
            loss = self.head(states, Batch({**batch, **answers}, checked=True))
        total: torch.Tensor = loss.total / max(1, len(asked))
        return total

    @torch.inference_mode()
    def said(
        self, rows: Sequence[tuple[Framed, Places]], *, size: int = 64, report: Report = lambda done: None
    ) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
        """The most probable label of each word and its probability, in the order of the rows; runs in eval mode."""
        found: list[Any] = [None] * len(rows)
        with evaluating(self):
            for index in by_length([len(framed) for framed, _ in rows], rows=size):
                framed = [rows[i][0] for i in index]
                batch = self.exact.batch(framed)
                states = self.states(self.exact, framed, batch, self.head.reads)
                width = batch["tokens"].shape[1]
                flat = np.concatenate([n * width + np.maximum(rows[i][1], 0) for n, i in enumerate(index)])
                places = torch.from_numpy(flat).to(self.exact.device)
                best, which = self.exact.scores(self.head, states, batch, places).softmax(-1).max(-1)
                bounds = np.cumsum([len(rows[i][1]) for i in index])[:-1]
                parts = (np.split(one.cpu().numpy(), bounds) for one in (which, best))
                for i, own, most in zip(index, *parts, strict=True):
                    found[i] = self._named(rows[i][1], own, most)
                report(len(index))
        return found

    def _named(self, columns: Places, which: Places, most: NDArray[np.float32]) -> tuple[tuple[str, ...], tuple[float, ...]]:
        labels = [self.names[n] if c >= 0 else self.usual for n, c in zip(which, columns, strict=True)]
        return tuple(labels), tuple(round(float(p), 6) if c >= 0 else 0.0 for p, c in zip(most, columns, strict=True))

    def judge(
        self, rows: Sequence[LabelledWords], metric: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> list[JudgedText]:
        """The labels of every text and those that were found."""
        said = self.said([(row.framed, row.columns) for row in rows], size=size, report=report)
        return judged([row.labels for row in rows], [labels for labels, _ in said])

    def metrics(self, judged: Sequence[JudgedText]) -> dict[str, float]:
        """Every metric of texts that were judged."""
        return figures(judged)

    def evaluate(
        self, examples: Tagged, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """All metrics on labelled texts; words that were not read and labels that training never saw are told."""
        rows = self.answered(examples)
        judged = self.judge(rows, size=size, report=report)
        unread = sum(int((row.columns < 0).sum()) for row in rows)
        unknown = Counter(label for row in rows for label in row.labels if label not in self.names)
        remarks = []
        if unread:
            remarks.append(f"{unread} words were not read (--length, or no token for them) and got the label {self.usual!r}")
        if unknown:
            counts = ", ".join(f"{label} ({number})" for label, number in unknown.most_common(_SHOWN))
            more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
            remarks.append(f"labels that training never saw are never right: {counts}{more}")
        baseline = None
        if always is not None:
            truth = [row.labels for row in rows]
            baseline = {"always": always, **measured(truth, [(always,) * len(labels) for labels in truth])}
        return Evaluation(len(rows), self.metrics(judged), baseline, tuple(remarks), judged)

    def predict(
        self, examples: Tagged, *, size: int = 64, report: Report = lambda done: None
    ) -> list[LabelsOfWords]:
        """The most probable label of every word."""
        said = self.said(self._asked(examples), size=size, report=report)
        rows = zip(examples.lines, examples.words, said, strict=True)
        return [LabelsOfWords(line, words, labels, shares) for line, words, (labels, shares) in rows]

    def stored(self) -> dict[str, StoredHead]:
        """The head that labels; the checkpoint's other heads are left behind."""
        return {HEAD: StoredHead(self.made.part, self.made.arguments, self.head.state_dict())}

    def description(self) -> dict[str, Any]:
        """The labels in the order of the head's outputs."""
        return {"labels": list(self.names), "usual": self.usual, "length": self.length, "head": HEAD}

    def _asked(self, examples: Tagged) -> list[tuple[Framed, Places]]:
        return word_columns(self.reader, examples.words, self.length)


class JudgedText(NamedTuple):
    """The labels of one text's words and those that were found, as numbers (2, K), and its spans: of the labels, found, right."""

    labels: Places
    spans: tuple[int, int, int]


def judged(truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]) -> list[JudgedText]:
    """What the metrics need of every text."""
    number = {label: n for n, label in enumerate(sorted({label for side in (truth, guess) for own in side for label in own}))}
    made = []
    for own, said in zip(truth, guess, strict=True):
        codes = np.array([[number[label] for label in side] for side in (own, said)], np.int64).reshape(2, -1)
        made.append(JudgedText(codes, span_counts(own, said)))
    return made


def figures(judged: Sequence[JudgedText]) -> dict[str, float]:
    """F1 of spans, and accuracy and macro-F1 over words."""
    true, guessed = np.concatenate([text.labels for text in judged], axis=1)
    counts = confusion(true, guessed, int(max(true.max(initial=0), guessed.max(initial=0))) + 1)
    return {"span_f1": f1_of(text.spans for text in judged), **{name: METRICS[name](counts) for name in NAMES[1:]}}


def measured(truth: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1 of spans, and accuracy and macro-F1 over words, of labels and those that were found."""
    return figures(judged(truth, guess))
