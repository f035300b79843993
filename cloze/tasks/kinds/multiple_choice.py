"""Choose the right one of several texts that go with another: causes, endings, answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import TextTable
from cloze.corpus.records.choice import choices_of, number_among
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import GroupChoice
from cloze.tasks.linear.features import Bags
from cloze.tasks.linear.linear_task import LinearTask, of_pair
from cloze.tasks.pictures import picture_numbers
from cloze.tasks.task import Prediction, Report, first_columns, silent
from cloze.tasks.texts import LABEL, LabelledTexts, SummaryLearner, TextTask, head_of_task, parsed

ChoiceRows = tuple[Framed, ...]  # of an example: its text with each of the texts that it offers


@dataclass(frozen=True)
class MultipleChoice(TextTask):
    """A task whose rows hold a text, a list of others (`text_b`) and the number of the right one of these, from 0."""

    name: str = "multiple_choice"
    pipeline: ClassVar[str | None] = "multiple-choice"
    one_text: ClassVar[bool] = False
    repeated: ClassVar[frozenset[str]] = frozenset({"choices"})
    metrics: ClassVar[Mapping[str, bool]] = {"accuracy": True}

    def others(self, table: TextTable, cells: list[str]) -> list[list[str]]:
        """The texts to choose from."""
        return parsed(table, cells, lambda cell: choices_of(cell, str(self.text_b)))

    def read_labels(self, table: TextTable, second_texts: list[Any] | None) -> list[int]:
        """The numbers of the right texts."""
        cells = zip(table.column(self.label, LABEL), second_texts or (), strict=True)
        return parsed(table, cells, lambda cell: number_among(cell[0], len(cell[1]), self.label))

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Chooser:
        """The chooser of a fine-tuned folder, or of one that transformers wrote."""
        reader = Reader.of(loaded)
        return Chooser(reader, head_of_task(loaded, task_json), self, length=task_json.get("length"))

    def truth(self, examples: LabelledTexts[int], labels: Sequence[str], *, numbered: bool = False) -> list[int]:
        """The numbers of the right texts."""
        return examples.require_labels()

    def per_example(self, truth: Any, outputs: Any, labels: Sequence[str]) -> NDArray[np.int64]:
        """The number of the right text of every example, and that of the likeliest: (N, 2)."""
        return np.array([(right, int(shares.argmax())) for right, shares in zip(truth, outputs, strict=True)], np.int64)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """The accuracy of pairs of numbers (N, 2)."""
        if not len(per_example):
            raise TaskError("no labelled examples to measure on.")
        truth, guess = np.asarray(per_example).T
        return {"accuracy": float((truth == guess).mean())}

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The accuracy of always choosing the text of one number."""
        return {"accuracy": float(np.mean(np.array(truth) == int(constant_answer)))}

    def linear(self, labels: Sequence[str] = ()) -> LinearChoice | None:
        """How well a choice goes with its text, by the n-grams of both; none if rows are about pictures."""
        return None if self.picture is not None else LinearChoice(self)


class LinearChoice(LinearTask):
    """A linear scorer of choices: each choice of an example is a decision."""

    divided: ClassVar[bool] = True

    @property
    def estimator(self) -> GroupChoice:
        """Logistic regression: whether a choice is the right one."""
        return GroupChoice()

    def texts(self, examples: Any) -> Iterable[str]:
        """The texts with all that they offer."""
        return (" ".join([text, *choices]) for text, choices in examples.rows())

    def texts_apart(self, examples: Any) -> Iterable[Sequence[str]]:
        """The text and what it offers."""
        return ((text, *choices) for text, choices in examples.rows())

    def bags(self, examples: Any, cutter: Cutter) -> Iterator[Bags]:
        """The n-grams of the text and a choice."""
        for text, choices in examples.rows():
            yield from (of_pair(text, choice, cutter) for choice in choices)

    def decisions(self, examples: Any) -> NDArray[np.int64]:
        """How many texts each example offers."""
        return np.array([len(choices) for choices in examples.others], np.int64)

    def targets(self, examples: Any) -> NDArray[np.float64]:
        """1 for the right choices, 0 for the others."""
        counts = self.decisions(examples)
        targets = np.zeros(int(counts.sum()))
        targets[np.cumsum(counts) - counts + np.array(examples.require_labels(), np.int64)] = 1.0
        return targets

    def outputs(self, scores: NDArray[Any], examples: Any) -> list[NDArray[np.float64]]:
        """The probabilities of the texts that each example offers."""
        return _shares(scores[:, 0].astype(np.float64), self.decisions(examples).tolist())


def _shares(scores: NDArray[np.float64], counts: Sequence[int]) -> list[NDArray[np.float64]]:
    """The softmax of the scores of each example, which has so many of them."""
    shares = []
    for example_scores in np.split(scores, np.cumsum(counts)[:-1]) if counts else []:
        shifted = np.exp(example_scores - example_scores.max())
        shares.append(shifted / shifted.sum())
    return shares


@dataclass(frozen=True)
class ChosenText(Prediction):
    """The number of the text that was chosen, from 0, with the example, and the probability of each that it offers."""

    line: int
    text: str
    choices: list[str]
    label: int
    choice: str
    probabilities: list[float]
    cut: int = 0


class Chooser(SummaryLearner):
    """A network with a head of one output that scores each text which an example offers."""

    def texts_of(self, examples: LabelledTexts[int]) -> Sequence[str]:
        """The texts with all that they offer."""
        return [" ".join([text, *choices]) for text, choices in examples.rows()]

    def encode(self, examples: LabelledTexts[int]) -> list[ChoiceRows]:
        """The rows of each example."""
        offered: Sequence[Sequence[str]] = examples.others or ()
        counts = [len(choices) for choices in offered]
        owners = np.repeat(np.arange(len(examples)), counts).tolist()
        framed = self.reader.encode(
            [examples.texts[owner] for owner in owners], [choice for choices in offered for choice in choices],
            max_length=self.length,
        )
        pictures = picture_numbers(self.reader, examples)
        framed = [replace(row, picture=pictures[owner]) for row, owner in zip(framed, owners, strict=True)]
        return [tuple(framed[begin:end]) for begin, end in pairwise(np.cumsum([0, *counts]).tolist())]

    def scores(self, rows: Sequence[Framed]) -> torch.Tensor:
        """Scores (R, 1) of framed rows in fp32: of several outputs the last one."""
        batch = self.reader.batch(rows)
        states = self.reader.states(batch, self.head.reads)
        with self.reader.autocast():
            scores: torch.Tensor = self.head.scores({name: states[name] for name in self.head.reads}, batch).float()
        return scores.reshape(len(rows), -1)[:, -1:]

    def row_outputs(self, rows: Sequence[ChoiceRows], size: int = 64, report: Report = silent) -> list[NDArray[np.float64]]:
        """The probabilities of the texts that each example offers."""
        flat = self.all_scores([framed for row in rows for framed in row], size)[:, 0].astype(np.float64)
        report(len(rows))
        return _shares(flat, [len(row) for row in rows])

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The first two columns."""
        return first_columns(per_example)

    def right(self, per_example: Any) -> NDArray[np.bool_]:
        """Where the first two columns are equal."""
        return np.asarray(per_example[:, 0] == per_example[:, 1])

    def cut_tokens(self, row: ChoiceRows) -> int:
        """How many tokens did not fit into the row that lost most."""
        return max(framed.cut for framed in row)

    def predictions(self, examples: LabelledTexts[int], rows: Sequence[ChoiceRows], outputs: Any) -> list[ChosenText]:
        """The likeliest text of every example, of equals the first."""
        answers = []
        for (line, text, choices), row, probabilities in zip(examples.with_lines(), rows, outputs, strict=True):
            best, shares = int(probabilities.argmax()), [round(p, 6) for p in probabilities.tolist()]
            answers.append(ChosenText(line, text, choices, best, choices[best], shares, self.cut_tokens(row)))
        return answers


@register("task", "multiple_choice")
def multiple_choice(
    text: str = "text", text_b: str = "choices", label: str = "label", picture: str | None = None
) -> MultipleChoice:
    """The right one of the texts of a list, which goes with a text. The arguments are names of columns."""
    return MultipleChoice(text, text_b, label, picture=picture)
