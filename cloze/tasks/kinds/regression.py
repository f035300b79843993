"""Predict a number for one or two texts: how similar they are, how hard a text is to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.records.number import number_of
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.registry import register
from cloze.tasks.linear.classes import LinearRegression
from cloze.tasks.measures.agreement import AGREEMENT, agreement, undefined
from cloze.tasks.task import Evaluation, Report, cut_remark
from cloze.tasks.texts import Answered, AnsweredTexts, CellTask, SummaryLearner, each_text, head_named


@dataclass(frozen=True)
class Regression(CellTask):
    """A task whose answers are numbers."""

    name: str = "regression"
    metrics: ClassVar[Mapping[str, bool]] = AGREEMENT

    def answer(self, cell: str) -> float:
        """A cell as a number."""
        return number_of(cell)

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Regressor:
        """The regressor of a fine-tuned folder."""
        reader = Reader.of(loaded, precision=precision)
        orders = described.get("over") == "orders"
        return Regressor(reader, head_named(loaded, described), self, length=described.get("length"), orders=orders)

    def linear(self, labels: Sequence[str] = ()) -> LinearRegression | None:
        """A number by the n-grams of the text or of both texts; none if rows are about pictures."""
        return None if self.picture is not None else LinearRegression(self)

    def constant(self, always: str, examples: AnsweredTexts[float], labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always predicting one number: its correlation is 0."""
        truth = examples.known()
        return agreement(truth, np.full(len(truth), float(always)))


@dataclass(frozen=True)
class Predicted:
    """The number of one row, with what the row's JSON object begins with, and how many tokens did not fit."""

    about: Mapping[str, Any]
    value: float
    cut: int = 0

    def record(self) -> dict[str, Any]:
        """The JSON object; a text that was read whole has no `cut`."""
        record = {**self.about, "value": self.value}
        return {**record, "cut": self.cut} if self.cut else record


@dataclass(frozen=True)
class Rated(Answered[float]):
    """A framed example and its number; `swapped` is the example with its texts in the other order, where both are read."""

    swapped: Framed | None = None


class Regressor(SummaryLearner):
    """A network with a head of one output; `orders`: it reads two texts in both orders and predicts the mean."""

    def __init__(self, reader: Reader, head: Any, task: Regression, *, length: int | None, orders: bool = False) -> None:
        super().__init__(reader, head, task, length=length)
        self.orders = orders

    def rated(self, examples: AnsweredTexts[Any], numbers: Sequence[float]) -> list[Rated]:
        """The examples as the network reads them, with numbers."""
        framed, swapped = self.encode(examples), [None] * len(examples)
        if self.orders and examples.others is not None:
            others = self.reader.encode(examples.others, examples.texts, max_length=self.length)
            swapped = self.shown(others, examples)  # type: ignore[assignment]
        return [Rated(*row) for row in zip(framed, numbers, swapped, strict=True)]

    def answered(self, examples: AnsweredTexts[float]) -> list[Rated]:
        """The examples with their numbers."""
        return self.rated(examples, examples.known())

    def numbers(
        self, rows: Sequence[Rated], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float64]:
        """The predicted number of every row (N,)."""
        scores = self.all_scores([row.framed for row in rows], size=size, report=report)[:, 0].astype(np.float64)
        swapped = [row.swapped for row in rows if row.swapped is not None]
        return (scores + self.all_scores(swapped, size=size)[:, 0]) / 2 if swapped else scores

    def outputs(
        self, examples: AnsweredTexts[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float64]:
        """The number that the network gives to each example, (N,)."""
        return self.numbers(self.rated(examples, [0.0] * len(examples)), size=size, report=report)

    def judge(
        self, rows: Sequence[Rated], metric: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> NDArray[np.float64]:
        """The given number of every row and the predicted one, (N, 2)."""
        return _judged(rows, self.numbers(rows, size=size, report=report))

    def metrics(self, judged: Any) -> dict[str, float]:
        """Correlations and squared error of pairs of numbers (N, 2)."""
        return agreement(*np.asarray(judged, np.float64).reshape(-1, 2).T)

    def evaluate(
        self, examples: AnsweredTexts[float], always: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> Evaluation:
        """Metrics on examples with numbers, and those of `always` predicting one."""
        rows = self.answered(examples)
        judged = _judged(rows, self.mixed(examples, self.numbers(rows, size=size, report=report)))
        constant = None if always is None else {"always": always, **self.task.constant(always, examples, ())}
        cut = cut_remark([row.framed.cut for row in rows], self.length)
        remarks = (*undefined(*judged.T), *([] if cut is None else [cut]))
        return Evaluation(len(rows), self.metrics(judged), constant, remarks, judged=judged)

    def predict(
        self, examples: AnsweredTexts[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> list[Predicted]:
        """The number of every example."""
        rows = self.rated(examples, [0.0] * len(examples))
        guess = self.mixed(examples, self.numbers(rows, size=size, report=report)).tolist()
        return [
            Predicted(about, round(value, 6), row.framed.cut)
            for about, value, row in zip(each_text(examples), guess, rows, strict=True)
        ]


def _judged(rows: Sequence[Rated], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The given number of every row and the predicted one, (N, 2)."""
    return np.stack([np.array([row.answer for row in rows], np.float64), numbers], axis=1)


@register("task", "regression")
def regression(
    text: str = "text", text_b: str | None = None, label: str = "label", picture: str | None = None
) -> Regression:
    """A number for a text, or with `text_b` for two. The arguments are names of columns."""
    return Regression(text, text_b, label, picture=picture)
