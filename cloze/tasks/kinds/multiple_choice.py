"""Choose the right one of several texts that go with another: causes, endings, answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import OPTION
from cloze.corpus.records.choice import choices_of, number_among
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import Parameter, TaskError
from cloze.registry import register
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Chosen as ChosenRows
from cloze.tasks.linear.features import Bags
from cloze.tasks.linear.linear_task import LinearTask, Outputs, of_pair
from cloze.tasks.pictures import numbers_of, with_picture
from cloze.tasks.task import Evaluation, Report, cut_remark
from cloze.tasks.texts import SummaryLearner, TableTask, head_named


@dataclass(frozen=True)
class Offered:
    """Texts, what each offers, the numbers of the right ones (None where a file has none), where they come from, and the keys of
    the pictures that they are about (None for tasks without pictures)."""

    texts: list[str]
    choices: list[list[str]]
    answers: list[int] | None
    path: str
    lines: tuple[int, ...]
    pictures: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def known(self) -> list[int]:
        """The numbers; a file without is a `TaskError`."""
        if self.answers is None:
            raise TaskError(f"{self.path}: has no answers; expected one in every row.")
        return self.answers


@dataclass(frozen=True)
class MultipleChoice(TableTask):
    """A task whose rows hold a text, a list of others (`text_b`) and the number of the right one of these, from 0; `picture` is
    the column with the key of the picture that a row is about."""

    picture: str | None = None
    name: str = "multiple_choice"
    metrics: ClassVar[Mapping[str, bool]] = {"accuracy": True}

    def read(self, path: Path | str, *, labelled: bool = True) -> Any:
        """The examples of a file; with `labelled=False` answers are read if the column is there."""
        table = self.table(path)
        texts, cells = table.column(self.text, OPTION), table.column(str(self.text_b), OPTION.sibling("text_b", "NAME"))
        answers: list[int] | None = [] if labelled or self.label in table.columns else None
        labels = table.column(self.label, OPTION.sibling("label", "NAME")) if answers is not None else [""] * len(table)
        choices = []
        for cell, label, line in zip(cells, labels, table.lines, strict=True):
            try:
                choices.append(choices_of(cell, str(self.text_b)))
                if answers is not None:
                    answers.append(number_among(label, len(choices[-1]), self.label))
            except ValueError as error:
                raise TaskError(f"{table.path}:{line}: {error}") from None
        pictures = None if self.picture is None else table.column(self.picture, Parameter("corpus.picture", "NAME"))
        return Offered(texts, choices, answers, table.path, table.lines, pictures)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": with_picture(super().description()["columns"], self.picture)}

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Chooser:
        """The chooser of a fine-tuned folder, or of one that transformers wrote."""
        reader = Reader.of(loaded, precision=precision)
        return Chooser(reader, head_named(loaded, described), self, length=described.get("length"))

    def linear(self, labels: Sequence[str] = ()) -> LinearChoice | None:
        """How well a choice goes with its text, by the n-grams of both; none if rows are about pictures."""
        return None if self.picture is not None else LinearChoice(self)

    def constant(self, always: str, examples: Offered, labels: Sequence[str]) -> dict[str, float]:
        """The accuracy of always choosing the text of one number."""
        return {"accuracy": float(np.mean(np.array(examples.known()) == int(always)))}


class LinearChoice(LinearTask):
    """A linear scorer of choices: each choice of an example is a decision."""

    @property
    def estimator(self) -> ChosenRows:
        """Logistic regression: whether a choice is the right one."""
        return ChosenRows()

    def texts(self, examples: Offered) -> Iterable[str]:
        """The texts with all that they offer."""
        return (" ".join([text, *choices]) for text, choices in zip(examples.texts, examples.choices, strict=True))

    def texts_apart(self, examples: Offered) -> Iterable[Sequence[str]]:
        """The text and what it offers."""
        return ((text, *choices) for text, choices in zip(examples.texts, examples.choices, strict=True))

    def bags(self, examples: Offered, cutter: Cutter) -> Iterator[Bags]:
        """The n-grams of the text and a choice."""
        for text, choices in zip(examples.texts, examples.choices, strict=True):
            yield from (of_pair(text, choice, cutter) for choice in choices)

    def decisions(self, examples: Offered) -> NDArray[np.int64]:
        """How many texts each example offers."""
        return np.array([len(choices) for choices in examples.choices], np.int64)

    def targets(self, examples: Offered) -> NDArray[np.float64]:
        """1 for the right choices, 0 for the others."""
        counts = self.decisions(examples)
        targets = np.zeros(int(counts.sum()))
        targets[np.cumsum(counts) - counts + np.array(examples.known(), np.int64)] = 1.0
        return targets

    def outputs(self, scores: NDArray[Any], examples: Offered) -> list[NDArray[np.float64]]:
        """The probabilities of the texts that each example offers."""
        return _shares(scores[:, 0].astype(np.float64), self.decisions(examples).tolist())

    def by_example(self, values: NDArray[Any], examples: Offered) -> list[NDArray[Any]]:
        """The values of what each example offers."""
        return np.split(values, np.cumsum(self.decisions(examples))[:-1]) if len(examples) else []

    def judged(self, examples: Offered, outputs: Outputs) -> NDArray[np.int64]:
        """The number of the right text of every example, and that of the likeliest: (N, 2)."""
        return np.array([
            (right, int(probabilities.argmax())) for right, probabilities in zip(examples.known(), outputs, strict=True)
        ], np.int64)  # fmt: skip

    def metrics(self, judged: Any) -> dict[str, float]:
        """The accuracy."""
        return _metrics(judged)


def _shares(scores: NDArray[np.float64], counts: Sequence[int]) -> list[NDArray[np.float64]]:
    """The softmax of the scores of each example, which has so many of them."""
    shares = []
    for example_scores in np.split(scores, np.cumsum(counts)[:-1]) if counts else []:
        shifted = np.exp(example_scores - example_scores.max())
        shares.append(shifted / shifted.sum())
    return shares


def _metrics(judged: Any) -> dict[str, float]:
    """The accuracy of pairs of numbers (N, 2)."""
    if not len(judged):
        raise TaskError("no labelled examples to measure on.")
    truth, guess = np.asarray(judged).T
    return {"accuracy": float((truth == guess).mean())}


@dataclass(frozen=True)
class OfferedRow:
    """The framed rows of one example, a row of each text that it offers, and the number of the right one."""

    framed: tuple[Framed, ...]
    answer: int

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens did not fit into the row that lost most."""
        return {"text": max(row.cut for row in self.framed)}

    def __len__(self) -> int:
        return sum(len(row) for row in self.framed)


@dataclass(frozen=True)
class Chosen:
    """The number of the text that was chosen, from 0, with the example, and the probability of each that it offers."""

    line: int
    text: str
    choices: list[str]
    label: int
    choice: str
    probabilities: list[float]
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object; an example that was read whole has no `cut`."""
        record = dict(self.__dict__)
        if not self.cut:
            del record["cut"]
        return record


class Chooser(SummaryLearner):
    """A network with a head of one output that scores each text which an example offers."""

    def texts_of(self, examples: Any) -> Sequence[str]:
        """The texts with all that they offer."""
        return [" ".join([text, *choices]) for text, choices in zip(examples.texts, examples.choices, strict=True)]

    def encode(self, examples: Any) -> list[Any]:
        """The rows of each example, a tuple."""
        counts = np.cumsum([0, *(len(choices) for choices in examples.choices)]).tolist()
        first = [text for text, choices in zip(examples.texts, examples.choices, strict=True) for _ in choices]
        framed = self.reader.encode(first, [choice for choices in examples.choices for choice in choices], max_length=self.length)
        owned = zip(numbers_of(self.reader, examples), examples.choices, strict=True)
        pictures = [number for number, choices in owned for _ in choices]
        framed = [replace(row, picture=number) for row, number in zip(framed, pictures, strict=True)]
        return [tuple(framed[begin:end]) for begin, end in pairwise(counts)]

    def scores(self, rows: Sequence[Framed]) -> torch.Tensor:
        """Scores (R, 1) of framed rows in fp32."""
        batch = self.exact.batch(rows)
        states = self.exact.states(batch, self.head.reads)
        with self.exact.autocast():
            scores: torch.Tensor = self.head.scores({name: states[name] for name in self.head.reads}, batch).float()
        return scores.reshape(len(rows), 1)

    def shares(
        self, rows: Sequence[tuple[Framed, ...]], *, size: int = 64, report: Report = lambda done: None
    ) -> list[NDArray[np.float64]]:
        """The probabilities of the texts that each example offers."""
        flat = self.all_scores([framed for row in rows for framed in row], size=size)[:, 0].astype(np.float64)
        report(len(rows))
        return _shares(flat, [len(row) for row in rows])

    def outputs(
        self, examples: Any, *, size: int = 64, report: Report = lambda done: None
    ) -> list[NDArray[np.float64]]:
        """The probabilities that the network gives to what each example offers."""
        return self.shares(self.encode(examples), size=size, report=report)

    def answered(self, examples: Any) -> list[OfferedRow]:
        """The examples with the numbers of the right texts."""
        return [OfferedRow(*pair) for pair in zip(self.encode(examples), examples.known(), strict=True)]

    def judge(
        self, rows: Sequence[OfferedRow], metric: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.int64]:
        """The number of the right text of every row, and that of the likeliest: (N, 2)."""
        return _judged(rows, self.shares([row.framed for row in rows], size=size, report=report))

    def metrics(self, judged: Any) -> dict[str, float]:
        """The accuracy of pairs of numbers (N, 2)."""
        return _metrics(judged)

    def evaluate(
        self, examples: Any, always: str | None = None, *, size: int = 64, report: Report = lambda done: None
    ) -> Evaluation:
        """The accuracy on examples with answers, and that of `always` choosing one number."""
        rows = self.answered(examples)
        judged = _judged(rows, self.mixed(examples, self.shares([row.framed for row in rows], size=size, report=report)))
        constant = None if always is None else {"always": always, **self.task.constant(always, examples, ())}
        cut = cut_remark([row.cut["text"] for row in rows], self.length)
        return Evaluation(len(rows), self.metrics(judged), constant, () if cut is None else (cut,), judged=judged)

    def predict(self, examples: Any, *, size: int = 64, report: Report = lambda done: None) -> list[Chosen]:
        """The likeliest text of every example, of equals the first."""
        rows = self.encode(examples)
        shares = self.mixed(examples, self.shares(rows, size=size, report=report))
        answers = []
        for line, text, choices, row, probabilities in zip(
            examples.lines, examples.texts, examples.choices, rows, shares, strict=True
        ):
            best = int(probabilities.argmax())
            lost = max(framed.cut for framed in row)
            answers.append(Chosen(line, text, choices, best, choices[best], [round(p, 6) for p in probabilities.tolist()], lost))
        return answers


def _judged(rows: Sequence[OfferedRow], shares: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    """The number of the right text of every row, and that of the likeliest: (N, 2)."""
    return np.array([
        (row.answer, int(probabilities.argmax())) for row, probabilities in zip(rows, shares, strict=True)
    ], np.int64)  # fmt: skip


@register("task", "multiple_choice")
def multiple_choice(
    text: str = "text", text_b: str = "choices", label: str = "label", picture: str | None = None
) -> MultipleChoice:
    """The right one of the texts of a list, which goes with a text. The arguments are names of columns."""
    return MultipleChoice(text, text_b, label, picture=picture)
