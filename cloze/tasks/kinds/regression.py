"""Predict a number for one or two texts: how similar they are, how hard a text is to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.records.number import number_of
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.registry import register
from cloze.tasks.linear.estimators import Numbers
from cloze.tasks.linear.linear_task import LinearTexts
from cloze.tasks.measures.agreement import AGREEMENT, agreement, undefined
from cloze.tasks.task import LabelledRow, Prediction, Report, first_columns, silent
from cloze.tasks.texts import LabelledTexts, SummaryLearner, TextTask, head_of_task

FramedOrders = tuple[Framed, ...]  # of an example: its texts in their order, and in the other one if both are read


@dataclass(frozen=True)
class Regression(TextTask):
    """A task whose answers are numbers."""

    name: str = "regression"
    pipeline: ClassVar[str | None] = "text-classification"
    metrics: ClassVar[Mapping[str, bool]] = AGREEMENT

    def parse_label(self, cell: str) -> float:
        """A cell as a number."""
        return number_of(cell)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Regressor:
        """The regressor of a fine-tuned folder."""
        reader, orders = Reader.of(loaded), task_json.get("over") == "orders"
        return Regressor(reader, head_of_task(loaded, task_json), self, length=task_json.get("length"), orders=orders)

    def truth(self, examples: LabelledTexts[float], labels: Sequence[str], *, numbered: bool = False) -> list[float]:
        """The numbers."""
        return examples.require_labels()

    def per_example(self, truth: Any, outputs: NDArray[Any], labels: Sequence[str]) -> NDArray[np.float64]:
        """The given number of every example and the predicted one, (N, 2)."""
        return np.stack([np.array(truth, np.float64), outputs], axis=1)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """Correlations and squared error of pairs of numbers (N, 2)."""
        return agreement(*np.asarray(per_example, np.float64).reshape(-1, 2).T)

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always predicting one number: its correlation is 0."""
        return agreement(truth, np.full(len(truth), float(constant_answer)))

    def linear(self, labels: Sequence[str] = ()) -> LinearRegression | None:
        """A number by the n-grams of the text or of both texts; none if rows are about pictures."""
        return None if self.picture is not None else LinearRegression(self)


class LinearRegression(LinearTexts):
    """A number for each example."""

    @property
    def estimator(self) -> Numbers:
        """Ridge regression."""
        return Numbers()

    def targets(self, examples: Any) -> NDArray[np.float64]:
        """The numbers (N,) in double precision."""
        return np.array(examples.require_labels(), np.float64)

    def outputs(self, scores: NDArray[Any], examples: Any) -> NDArray[Any]:
        """The only score of each example, (N,)."""
        return scores[:, 0]


@dataclass(frozen=True)
class PredictedNumber(Prediction):
    """The number of one row, its line, its texts, and how many tokens did not fit."""

    line: int
    text: str
    text_b: str | None
    value: float
    cut: int = 0


class Regressor(SummaryLearner):
    """A network with a head of one output; `orders`: it reads two texts in both orders and predicts the mean."""

    def __init__(self, reader: Reader, head: Any, task: Any, *, orders: bool = False, **options: Any) -> None:
        super().__init__(reader, head, task, **options)
        self.orders = orders

    def encode(self, examples: LabelledTexts[Any]) -> list[FramedOrders]:
        """The readings of every example."""
        framed = super().encode(examples)
        if not self.orders or examples.others is None:
            return list(zip(framed))
        swapped = self.reader.encode(examples.others, examples.texts, max_length=self.length)
        return list(zip(framed, self.with_pictures(swapped, examples), strict=True))

    def row_outputs(self, rows: Sequence[FramedOrders], size: int = 64, report: Report = silent) -> NDArray[np.float64]:
        """The predicted number of every row (N,)."""
        scores = self.all_scores([row[0] for row in rows], size, report)[:, 0].astype(np.float64)
        swapped = [row[1] for row in rows if len(row) > 1]
        return (scores + self.all_scores(swapped, size)[:, 0]) / 2 if swapped else scores

    def cut_tokens(self, row: FramedOrders) -> int:
        """How many tokens did not fit."""
        return row[0].cut

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """The first two columns."""
        return first_columns(per_example)

    def remarks(self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """Whether there is no correlation, and how many texts were cut."""
        return [*undefined(*per_example.T), *super().remarks(examples, rows, outputs, per_example)]

    def predictions(self, examples: LabelledTexts[Any], rows: Sequence[FramedOrders], outputs: Any) -> list[PredictedNumber]:
        """The number of every example."""
        return [
            PredictedNumber(*about, rounded(value), self.cut_tokens(row))
            for about, row, value in zip(examples.with_lines(), rows, outputs.tolist(), strict=True)
        ]


def rounded(value: float) -> float:
    """A number to six decimals, a small one to six significant digits: 2e-7 is not 0."""
    return round(value, 6) if abs(value) >= 0.1 else float(f"{value:.6g}")


@register("task", "regression")
def regression(
    text: str = "text", text_b: str | None = None, label: str = "label", picture: str | None = None
) -> Regression:
    """A number for a text, or with `text_b` for two. The arguments are names of columns."""
    return Regression(text, text_b, label, picture=picture)
