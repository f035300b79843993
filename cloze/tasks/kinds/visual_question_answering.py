"""Answer questions about pictures by one of the answers of the training text, of which several may be right to a degree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.records.scored import scores_in
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError
from cloze.registry import register
from cloze.tasks.task import LabelledRow, Prediction, Report, silent
from cloze.tasks.texts import LabelledTexts, SummaryLearner, TextTask, head_of_task

SHOWN = 5  # answers of a prediction
Scores = Mapping[str, float]


@dataclass(frozen=True)
class VisualQuestionAnswering(TextTask):
    """A task whose labels are scores of classes: how right each answer is, from 0 to 1."""

    name: str = "visual_question_answering"
    instead_of_text: ClassVar[str] = "chooses an answer"
    metrics: ClassVar[Mapping[str, bool]] = {"vqa_accuracy": True}

    def parse_label(self, cell: str) -> Scores:
        """A cell as the score of each answer."""
        return scores_in(cell)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> QuestionAnswerer:
        """The answerer of a fine-tuned folder."""
        head = head_of_task(loaded, task_json)
        return QuestionAnswerer(Reader.of(loaded), head, self, length=task_json.get("length"), labels=task_json["labels"])

    def truth(self, examples: LabelledTexts[Scores], labels: Sequence[str], *, numbered: bool = False) -> list[Scores]:
        """The scores of the answers."""
        return examples.require_labels()

    def per_example(
        self, truth: Sequence[Scores], outputs: NDArray[np.floating], labels: Sequence[str]
    ) -> NDArray[np.float64]:
        """The score of the likeliest answer of every example, and the highest score that a class has, (N, 2)."""
        best, known = np.asarray(outputs).argmax(1).tolist() if len(outputs) else [], frozenset(labels)
        return np.array([
            (scores.get(labels[number], 0.0), max((score for name, score in scores.items() if name in known), default=0.0))
            for scores, number in zip(truth, best, strict=True)
        ], np.float64).reshape(-1, 2)  # fmt: skip

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """The mean score of the answers given, the accuracy of VQA (Antol et al., 2015, §3)."""
        if not len(per_example):
            raise TaskError("no labelled examples to measure on.")
        return {"vqa_accuracy": float(np.asarray(per_example)[:, 0].mean())}

    def constant_metrics(self, constant_answer: str, truth: Sequence[Scores], labels: Sequence[str]) -> dict[str, float]:
        """The accuracy of always giving one answer."""
        return {"vqa_accuracy": float(np.mean([scores.get(constant_answer, 0.0) for scores in truth]))}


@dataclass(frozen=True)
class ChosenAnswer(Prediction):
    """The likeliest answer to a question.

    Attributes:
        line: The line of the file that the question comes from.
        text: The question.
        text_b: A second text, if the task has one.
        label: The answer.
        probability: Its probability.
        probabilities: The five likeliest answers with their probabilities, which are independent of each other if the head has
            learned a yes or no for each answer.
        cut: How many tokens of the question did not fit.
    """

    line: int
    text: str
    text_b: str | None
    label: str
    probability: float
    probabilities: dict[str, float]
    cut: int = 0


class QuestionAnswerer(SummaryLearner):
    """A network with a head that has an output for each of `labels`, the answers."""

    def row_outputs(self, rows: Sequence[Framed], size: int = 64, report: Report = silent) -> NDArray[np.float64]:
        """The probability of every answer for every framed row, (N, C)."""
        scores = torch.from_numpy(self.all_scores(rows, size, report)).double()
        shares = torch.sigmoid(scores) if self.head.independent else scores.softmax(-1)
        return np.asarray(shares.numpy()) if len(rows) else np.zeros((0, len(self.label_names)))

    def truth_and_predictions(self, per_example: Any) -> tuple[Sequence[Any], Sequence[Any]]:
        """The highest score that was possible, and that of the answer given."""
        return list(per_example[:, 1]), list(per_example[:, 0])

    def remarks(
        self, examples: LabelledTexts[Scores], rows: Sequence[LabelledRow], outputs: Any, per_example: Any
    ) -> list[str]:
        """What the best of the known answers would reach, and how many texts were cut."""
        most = float(np.asarray(per_example)[:, 1].mean())
        remark = f"the best of the {len(self.label_names):,} answers of the training text would reach vqa_accuracy {most:.4f}"
        return [remark, *super().remarks(examples, rows, outputs, per_example)]

    def predictions(self, examples: LabelledTexts[Scores], rows: Sequence[Framed], outputs: Any) -> list[ChosenAnswer]:
        """The likeliest answer of every example."""
        answers = []
        for about, row, shares in zip(examples.with_lines(), rows, outputs, strict=True):
            order = np.argsort(-shares, kind="stable")[:SHOWN]
            likeliest = {self.label_names[number]: round(float(shares[number]), 6) for number in order}
            label, probability = next(iter(likeliest.items()))
            answers.append(ChosenAnswer(*about, label, probability, likeliest, self.cut_tokens(row)))
        return answers


@register("task", "visual_question_answering")
def visual_question_answering(
    text: str = "text", text_b: str | None = None, label: str = "label", picture: str | None = None
) -> VisualQuestionAnswering:
    """The answer to a question, one of those of the training text, of which several may be right to a degree. The arguments are
    names of columns."""
    return VisualQuestionAnswering(text, text_b, label, picture=picture)
