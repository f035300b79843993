"""Answer questions by spans of a text: how files are read, and the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.corpus.readers.questions import Names, Questions, read_questions
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError
from cloze.objectives import SpanExtraction
from cloze.registry import register
from cloze.tasks.kinds.extractor import Extractor
from cloze.tasks.measures.answers import answer_scores, scoring_of
from cloze.tasks.pictures import keys_of, with_picture
from cloze.tasks.task import Unsearched


@dataclass(frozen=True)
class QuestionAnswering(Unsearched):
    """A task: the fields that hold a question, its context, the answers, and in JSON lines the key of a picture, if questions are
    about pictures."""

    text: str = "question"
    text_b: str = "context"
    label: str = "answers"
    picture: str | None = None
    name: str = "question_answering"
    does: ClassVar[str] = "finds one"

    @property
    def metrics(self) -> Mapping[str, bool]:
        """F1 first; of both more is better."""
        return {"f1": True, "exact_match": True}

    def reading(self, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> QuestionAnswering:
        """The same task: files of questions are JSON, and say what their fields are."""
        if columns or format not in (None, "jsonl"):
            raise TaskError(f"--columns and --format are for tables; {self.name} reads JSON as SQuAD has it. Leave them out.")
        return replace(self)

    def read(self, path: Path | str, *, labelled: bool = True) -> Questions:
        """The questions of a file. The positions of answers are ignored: only their texts are compared."""
        questions = read_questions(path, Names(self.text, self.text_b, self.label), labelled=labelled)
        return replace(questions, pictures=keys_of(path, [record.line for record in questions.each], self.picture))

    def load(self, loaded: Checkpoint, described: Mapping[str, Any], precision: torch.dtype | None) -> Extractor:
        """What answers questions, from a fine-tuned folder."""
        heads = [name for name, head in loaded.heads.items() if isinstance(head, SpanExtraction)]
        name = described["head"] or (heads or ["span_extraction"])[0]
        if name not in loaded.heads:
            raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
        return Extractor(
            Reader.of(loaded, precision=precision), loaded.heads[name], self, length=described.get("length"),
            stride=described.get("stride") or 128, max_answer_length=described.get("longest") or 30,
            threshold=(described.get("dev") or {}).get("threshold"),
        )

    def constant(self, always: str, examples: Questions, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one answer, "" for none."""
        gold = wanted_of(examples)
        return answer_scores([always] * len(gold), gold, scoring=scoring_of(answer for answers in gold for answer in answers))

    def description(self) -> dict[str, Any]:
        """The names of the fields."""
        return {"columns": with_picture({"text": self.text, "text_b": self.text_b, "label": self.label}, self.picture)}


def wanted_of(examples: Questions) -> list[list[str]]:
    """The texts of the right answers to each question."""
    return [[answer.text for answer in record.answers or ()] for record in examples.each]


@register("task", "question_answering")
def question_answering(
    text: str = "question", text_b: str = "context", label: str = "answers", picture: str | None = None
) -> QuestionAnswering:
    """The span of a text that answers a question, or none if the text has no answer (SQuAD). The arguments name fields."""
    return QuestionAnswering(text, text_b, label, picture)
