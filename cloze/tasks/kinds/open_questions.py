"""Answer questions from a collection of texts, of which the best are retrieved and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from cloze.batch import Batch
from cloze.corpus.readers.labelled import members
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.networks.blocks.dropout import name_dropouts
from cloze.objectives.labels.evidence import LatentAnswer, nearest_blocks, real_tokens, rows_with_blocks
from cloze.registry import register
from cloze.tasks.measures.answers import QuestionScores, answer_scores, question_scores, scoring_of
from cloze.tasks.task import Learner, Prediction, Report, require_head, silent
from cloze.tasks.texts import LabelledTexts, TextTask, head_of_task


@dataclass(frozen=True)
class OpenQuestionAnswering(TextTask):
    """A task: the columns of a question and of its answer, or answers, of which any is right."""

    text: str = "question"
    label: str = "answer"
    name: str = "open_question_answering"
    lists: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, bool]] = {"exact_match": True, "f1": True}

    def parse_label(self, cell: Any) -> list[str]:
        """The answers in a cell."""
        answers = [member or "" for member in members(cell)]
        if not answers or not all(answer.strip() for answer in answers):
            raise ValueError(f"{str(cell)[:60]!r}; expected an answer, or in JSON lines a list of them.")
        return answers

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> OpenReader:
        """What answers questions, of a fine-tuned folder."""
        tower = task_json["towers"]["query"]
        encoder = loaded if tower["network"] is None else loaded.other(tower["network"])
        questions = Reader.of(encoder), require_head(encoder, tower["head"])
        reader = Reader.of(loaded)
        return OpenReader(reader, head_of_task(loaded, task_json), self, length=task_json.get("length"), questions=questions)

    def truth(self, examples: LabelledTexts[list[str]], labels: Sequence[str], *, numbered: bool = False) -> list[list[str]]:
        """The right answers to each question."""
        return examples.require_labels()

    def per_example(self, truth: Any, outputs: Sequence[RetrievedAnswer], labels: Sequence[str]) -> list[QuestionScores]:
        """How well every question was answered."""
        scoring = scoring_of(answer for answers in truth for answer in answers)
        return [
            question_scores(output.text, answers, scoring=scoring) for output, answers in zip(outputs, truth, strict=True)
        ]

    def compute_metrics(self, per_example: Sequence[QuestionScores], labels: Sequence[str]) -> dict[str, float]:
        """The means over questions."""
        exact, f1 = (sum(column) / len(per_example) for column in zip(*per_example, strict=True))
        return {"exact_match": exact, "f1": f1}

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one answer."""
        scoring = scoring_of(answer for answers in truth for answer in answers)
        return answer_scores([constant_answer] * len(truth), truth, scoring=scoring)


class RetrievedAnswer(NamedTuple):
    """The best answer to a question, how probable it is among all spans that were read, and the line of its block with the
    text."""

    text: str
    probability: float
    line: int
    block: str


@dataclass(frozen=True)
class FoundAnswer(Prediction):
    """An answer to the question of a line, and the line of the block that it was found in, with its text."""

    line: int
    question: str
    answer: str
    score: float
    evidence_line: int
    evidence: str
    cut: int = 0


class OpenReader(Learner):
    """A reader with a head for spans of retrieved blocks; `questions` are the network and the head that make questions into
    vectors. The blocks are those of the head's table."""

    head: LatentAnswer

    def __init__(
        self, reader: Reader, head: LatentAnswer, task: Any, *, length: int | None, questions: tuple[Reader, Any]
    ) -> None:
        super().__init__(reader, head, task, length=length)
        encoder, self.question_head = questions
        self.question_network: Any = encoder.network
        self.question_reader = encoder
        name_dropouts(self)

    def encode(self, examples: LabelledTexts[Any]) -> list[Framed]:
        """The questions."""
        return self.question_reader.encode(examples.texts, max_length=self.length)

    @torch.inference_mode()
    def row_outputs(self, rows: Sequence[Framed], size: int = 64, report: Report = silent) -> list[RetrievedAnswer]:
        """The best answer to every question."""
        outputs: dict[int, RetrievedAnswer] = {}
        with evaluating(self):
            for index in self.question_reader.batches([len(row) for row in rows], rows=size):
                answers = self._answers(self.question_reader.batch([rows[i] for i in index]))
                outputs.update(zip(index.tolist(), answers, strict=True))
                report(len(index))
        return [outputs[number] for number in range(len(rows))]

    def _answers(self, batch: Batch) -> list[RetrievedAnswer]:
        """The best answer to each question of a batch."""
        states = self.question_reader.states(batch, self.question_head.reads)
        query = self.question_head.scores({name: states[name] for name in self.question_head.reads}, batch).float()
        evidence, vectors = self.head.evidence, self.head.vectors
        assert vectors is not None  # a checkpoint holds its tables
        retrieved = nearest_blocks(query, vectors, evidence.settings.top)
        fields = Batch({**rows_with_blocks(evidence, retrieved, batch), "retrieved": retrieved})
        hidden = self.reader.states(fields, {"hidden"})["hidden"]
        best = self.head.best(self.head.spans({"hidden": hidden, "query": query}, fields))
        lengths, blocks = real_tokens(batch).sum(1).tolist(), retrieved.tolist()
        answers = []
        for question, span in enumerate(best):
            block = blocks[question][span.row]
            first = int(evidence.offsets[block]) - lengths[question]  # of the row, among all tokens
            text = evidence.text(block)
            places = evidence.places[first + span.first : first + span.last + 1]
            answer = text[int(places[0, 0]) : int(places[-1, 1])].strip()
            answers.append(RetrievedAnswer(answer, span.probability, int(evidence.lines[block]), text))
        return answers

    def predictions(
        self, examples: LabelledTexts[Any], rows: Sequence[Framed], outputs: Sequence[RetrievedAnswer]
    ) -> list[FoundAnswer]:
        """The answer to every question."""
        return [
            FoundAnswer(line, question, output.text, round(output.probability, 6), output.line, output.block, row.cut)
            for line, question, row, output in zip(examples.lines, examples.texts, rows, outputs, strict=True)
        ]


@register("task", "open_question_answering")
def open_question_answering(text: str = "question", label: str = "answer") -> OpenQuestionAnswering:
    """Answers to questions from a collection of texts. The arguments are names of columns."""
    return OpenQuestionAnswering(text, label=label)
