"""Predict a number of a text or of two: how alike they are, how hard a text is to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.records.number import number_of
from cloze.decoding.reader import Checkpoint, Reader
from cloze.registry import register
from cloze.tasks.agreement import AGREEMENT, agreement, undefined
from cloze.tasks.task import Evaluation, Report, cut_remark
from cloze.tasks.texts import Answered, AnsweredTexts, SummaryLearner, TextTask, each_text, head_named


@dataclass(frozen=True)
class Regression(TextTask):
    """A task whose answers are numbers."""

    name: ClassVar[str] = "regression"
    metrics: ClassVar[Mapping[str, bool]] = AGREEMENT

    def answer(self, cell: str) -> float:
        """A cell as a number."""
        return number_of(cell)

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Regressor:
        """The regressor of a fine-tuned folder."""
        reader = Reader.of(loaded, precision=precision)
        return Regressor(reader, head_named(loaded, described), self, length=described.get("length"))

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
        made = {**self.about, "value": self.value}
        return {**made, "cut": self.cut} if self.cut else made


class Regressor(SummaryLearner):
    """A network with a head of one output."""

    def answered(self, examples: AnsweredTexts[float]) -> list[Answered[float]]:
        """The examples with their numbers."""
        return [Answered(*one) for one in zip(self.encode(examples), examples.known(), strict=True)]

    def numbers(
        self, rows: Sequence[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float32]:
        """The predicted number of every framed row (N,)."""
        return self.all_scores(rows, size=size, report=report)[:, 0]

    def judge(
        self, rows: Sequence[Answered[float]], metric: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> NDArray[np.float64]:
        """The given number of every row and the predicted one, (N, 2)."""
        guess = self.numbers([row.framed for row in rows], size=size, report=report)
        return np.stack([np.array([row.answer for row in rows], np.float64), guess], axis=1)

    def metrics(self, judged: Any) -> dict[str, float]:
        """Correlations and squared error of pairs of numbers (N, 2)."""
        return agreement(*np.asarray(judged, np.float64).reshape(-1, 2).T)

    def evaluate(
        self, examples: AnsweredTexts[float], always: str | None = None, *, size: int = 64,
        report: Report = lambda done: None,
    ) -> Evaluation:
        """Metrics on examples with numbers, and those of `always` predicting one."""
        rows = self.answered(examples)
        judged = self.judge(rows, size=size, report=report)
        constant = None if always is None else {"always": always, **self.task.constant(always, examples, ())}
        cut = cut_remark([row.framed.cut for row in rows], self.length)
        remarks = (*undefined(*judged.T), *([] if cut is None else [cut]))
        return Evaluation(len(rows), self.metrics(judged), constant, remarks, judged=judged)

    def predict(
        self, examples: AnsweredTexts[Any], *, size: int = 64, report: Report = lambda done: None
    ) -> list[Predicted]:
        """The number of every example."""
        framed = self.encode(examples)
        guess = self.numbers(framed, size=size, report=report).tolist()
        return [
            Predicted(about, round(value, 6), read.cut)
            for about, value, read in zip(each_text(examples), guess, framed, strict=True)
        ]


@register("task", "regression")
def regression(text: str = "text", text_b: str | None = None, label: str = "label") -> Regression:
    """A number for a text, or with `text_b` for two. The arguments are names of columns."""
    return Regression(text, text_b, label)
