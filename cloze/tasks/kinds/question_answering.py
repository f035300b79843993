"""Answer questions by spans of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cloze.batch import Batch
from cloze.corpus.readers.questions import QuestionFields, QuestionRecord, Questions, read_questions
from cloze.corpus.records.windows import windows
from cloze.decoding.layout import Framed, Ids, Marks
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.errors import TaskError
from cloze.objectives import SpanExtraction
from cloze.tasks.kinds.extraction import best_positions, best_span, best_threshold
from cloze.tasks.measures.answers import QuestionScores, answer_scores, means, question_scores, real_answers, scoring_of
from cloze.tasks.pictures import keys_of, picture_numbers, with_picture
from cloze.tasks.task import LabelledRow, Learner, Prediction, Report, require_head, silent
from cloze.tasks.texts import ObjectTask
from cloze.text.tokenizer import Spelled

Int64 = NDArray[np.int64]
#: Tokens of an answer, as in google-research/bert (`max_answer_length`), unless a training answer is longer.
LONGEST = 30
#: The scores of an answer by the names of their metrics.
_SCORES: Mapping[str, Callable[[QuestionScores], float]] = {
    "exact_match": lambda scores: scores.exact, "f1": lambda scores: scores.f1,
}


@dataclass(frozen=True)
class QuestionAnswering(ObjectTask):
    """A task: the fields that hold a question, its context, and the answers."""

    text: str = "question"
    text_b: str = "context"
    label: str = "answers"
    name: str = "question_answering"
    pipeline: ClassVar[str | None] = "question-answering"
    one_text: ClassVar[bool] = False
    instead_of_text: ClassVar[str] = "finds one"
    files: ClassVar[str] = "JSON as SQuAD has it"
    metrics: ClassVar[Mapping[str, bool]] = {"f1": True, "exact_match": True}

    @property
    def learner(self) -> type[Extractor]:
        """What answers the questions."""
        return Extractor

    def read(self, path: Path | str, *, labelled: bool = True) -> Questions:
        """The questions of a file. The positions of answers are ignored: only their texts are compared."""
        questions = read_questions(path, QuestionFields(self.text, self.text_b, self.label), labelled=labelled)
        return replace(questions, pictures=keys_of(path, [record.line for record in questions.each], self.picture))

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Extractor:
        """What answers questions, from a fine-tuned folder."""
        heads = [name for name, head in loaded.heads.items() if isinstance(head, SpanExtraction)]
        name = task_json["head"] or (heads or ["span_extraction"])[0]
        return self.learner(
            Reader.of(loaded), require_head(loaded, name), self, length=task_json.get("length"),
            stride=task_json.get("stride") or 128, max_answer_length=max(task_json.get("longest") or 0, LONGEST),
            threshold=(task_json.get("dev") or {}).get("threshold"),
        )

    def truth(self, examples: Questions, labels: Sequence[str], *, numbered: bool = False) -> list[list[str]]:
        """The texts of the right answers to each question."""
        for record in examples.each:
            if record.answers is None:
                raise TaskError(f"{examples.path}:{record.line}: no answers; expected them for every question.")
        return [[answer.text for answer in record.answers or ()] for record in examples.each]

    def per_example(self, truth: Any, outputs: Sequence[PredictedAnswer], labels: Sequence[str]) -> list[JudgedQuestion]:
        """The scores of the best answer to every question, and those of giving none."""
        scoring = scoring_of(answer for answers in truth for answer in answers)
        return [
            JudgedQuestion(
                question_scores(predicted.text, answers, scoring=scoring), question_scores("", answers, scoring=scoring),
                predicted.margin, bool(real_answers(answers, scoring=scoring)), predicted.overlap,
            )
            for predicted, answers in zip(outputs, truth, strict=True)
        ]

    def compute_metrics(self, per_example: Sequence[JudgedQuestion], labels: Sequence[str]) -> dict[str, float]:
        """Exact match and F1 where every question is answered."""
        return compute_metrics(per_example, None)

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of always giving one answer, "" for none."""
        scoring = scoring_of(answer for answers in truth for answer in answers)
        return answer_scores([constant_answer] * len(truth), truth, scoring=scoring)

    def description(self) -> dict[str, Any]:
        """The names of the fields."""
        return {"columns": with_picture({"text": self.text, "text_b": self.text_b, "label": self.label}, self.picture)}


class ContextWindow(NamedTuple):
    """A window over a context as the network reads it.

    `columns`: of its tokens; `begin`: the first one's number in the context; `begins`: where an answer may begin in it.
    """

    framed: Framed
    columns: Int64
    begin: int
    begins: NDArray[np.bool_]


@dataclass(frozen=True)
class QuestionRow:
    """A question with the windows over its context, the characters of the context that each token covers, and the number of the
    picture that it is about, -1 for none."""

    record: QuestionRecord
    windows: tuple[ContextWindow, ...]
    start: Int64
    stop: Int64
    cut: Mapping[str, int]
    picture: int = -1

    def __len__(self) -> int:
        return sum(len(window.framed) for window in self.windows)


class PredictedAnswer(NamedTuple):
    """The best answer to a question, its characters and how probable it is, and by how much giving none beats it. `overlap` is
    the share of time that it has in common with a right answer, None in texts."""

    text: str
    start: int
    stop: int
    probability: float
    margin: float
    none: float  # how probable it is that there is no answer
    overlap: float | None = None


class _Texts(NamedTuple):
    """The tokens of a question and of its context, the labelled layers of both, and the number of their picture, -1 for none."""

    ids: tuple[Ids, Ids]
    marks: tuple[Marks, Marks]
    picture: int


class JudgedQuestion(NamedTuple):
    """The scores of the best answer to a question and of none, by how much none beats it, whether there is an answer, and
    `PredictedAnswer.overlap`."""

    answered: QuestionScores
    silent: QuestionScores
    margin: float
    answerable: bool
    overlap: float | None = None


@dataclass(frozen=True)
class ExtractedAnswer(Prediction):
    """An answer: the characters of the context from `start` to `end`; "" and None where the context does not say."""

    line: int
    id: str
    question: str
    answer: str
    start: int | None
    end: int | None
    score: float


class Extractor(Learner):
    """A reader with a head for spans.

    `stride` and `length` are those of the windows over a context. An answer has at most `max_answer_length` tokens. `threshold`
    is the margin above which no answer is given, chosen on the dev questions; None: always an answer.
    """

    def __init__(
        self, reader: Reader, head: nn.Module, task: Any, *, length: int | None, stride: int, max_answer_length: int,
        threshold: float | None,
    ) -> None:
        super().__init__(reader, head, task, length=length)
        self.stride, self.max_answer_length, self.threshold = stride, max_answer_length, threshold

    def encode(self, examples: Questions) -> list[QuestionRow]:
        """The questions as the network reads them, in the windows that it was trained on."""
        contexts = {context: index for index, context in enumerate(dict.fromkeys(record.context for record in examples.each))}
        spelled = self.spell(list(contexts))
        bounds = spelled.offsets.tolist()
        spans = [slice(bounds[index], bounds[index + 1]) for index in (contexts[record.context] for record in examples.each)]
        questions = self.reader.ids([record.question.strip() for record in examples.each])
        context_marks = dict(zip(contexts, self.context_marks(list(contexts), np.diff(bounds)), strict=True))
        question_marks = self.reader.marks([record.question.strip() for record in examples.each])
        sizes = [(len(question), tokens.stop - tokens.start) for question, tokens in zip(questions, spans, strict=True)]
        lengths = np.array(sizes, np.int64).reshape(-1, 2)
        number, parts = windows(lengths, self._room(lengths), self.stride)
        cuts = np.searchsorted(number, np.arange(len(questions) + 1)).tolist()
        rows, pictures = [], picture_numbers(self.reader, examples)
        for position, (record, question, tokens) in enumerate(zip(examples.each, questions, spans, strict=True)):
            span = slice(cuts[position], cuts[position + 1])
            question_length = int(parts.kept[span, 0][0])
            marks = question_marks[position], context_marks[record.context]
            texts = _Texts((question[:question_length], spelled.ids[tokens]), marks, pictures[position])
            context_windows = self._windows(texts, parts.first[span, 1], parts.kept[span, 1])
            cut = {"question": len(question) - question_length}
            rows.append(
                QuestionRow(record, context_windows, spelled.begin[tokens], spelled.end[tokens], cut, pictures[position])
            )
        return rows

    def spell(self, contexts: Sequence[str]) -> Spelled:
        """The tokens of contexts."""
        return self.reader.tokenizer.encode_spelled(contexts)

    def context_marks(self, contexts: Sequence[str], sizes: Int64) -> Sequence[Marks]:
        """The labelled layers of contexts of so many tokens."""
        return self.reader.marks(contexts)

    def batch(self, framed: Sequence[Framed]) -> Batch:
        """Framed windows as a batch."""
        return self.reader.batch(framed)

    @property
    def _bounds(self) -> list[int]:
        """The numbers of tokens beyond which a row is not read."""
        return [n for n in (self.length, self.reader.max_length) if n is not None]

    def _room(self, lengths: Int64) -> int:
        """How many tokens of texts fit into a row."""
        layout, bounds = self.reader.pair_layout, self._bounds
        if not bounds:
            return int(lengths.sum(1).max(initial=1))
        if min(bounds) <= layout.added:
            raise TaskError(
                f"a length of {min(bounds)} leaves no room for text: {layout.template!r} itself takes {layout.added} tokens."
            )
        max_tokens = self.reader.max_tokens(min(bounds))
        assert max_tokens is not None  # there is a bound
        return max_tokens - layout.added

    def _windows(self, texts: _Texts, begin: Int64, count: Int64) -> tuple[ContextWindow, ...]:
        context_windows, (question, context), (question_marks, context_marks), picture = [], *texts
        for start, size, begins in zip(begin.tolist(), count.tolist(), best_positions(begin, count, len(context)), strict=True):
            framed = replace(self.reader.pair_layout([question, context[start : start + size]]), picture=picture)
            framed = framed.marked([
                question_marks, {name: values[start : start + size] for name, values in context_marks.items()}
            ])
            (framed,) = self.reader.with_facts([framed], min(self._bounds, default=None))
            context_windows.append(ContextWindow(framed, np.flatnonzero(framed.part == 1), start, begins))
        return tuple(context_windows)

    @torch.inference_mode()
    def row_outputs(self, rows: Sequence[QuestionRow], size: int = 64, report: Report = silent) -> list[PredictedAnswer]:
        """The best answer to every question."""
        flat = [(number, window) for number, row in enumerate(rows) for window in row.windows]
        last = {number: position for position, (number, _) in enumerate(flat)}
        scored: list[list[tuple[ContextWindow, Any, Any, int]]] = [[] for _ in rows]
        with evaluating(self):
            for index in self.reader.batches([len(window.framed) for _, window in flat], rows=size):
                batch = self.batch([flat[i][1].framed for i in index])
                scores = self._scores(batch)
                summaries = (batch["summaries"].cpu().numpy() % batch["tokens"].shape[1]).tolist()
                for batch_row, i in enumerate(index):
                    number, window = flat[i]
                    window_scores = scores[:, batch_row, : len(window.framed)]
                    scored[number].append((window, window_scores[0], window_scores[1], summaries[batch_row]))
                report(sum(last[flat[i][0]] == i for i in index))
        return [self._best(row, windows_) for row, windows_ in zip(rows, scored, strict=True)]

    def _scores(self, batch: Batch) -> NDArray[np.float32]:
        """(2, B, L) for each token as the first and as the last of the answer of its row."""
        states = self.reader.states(batch, self.head.reads)
        positions = batch["summaries"][:, None].expand(-1, 2)
        scores: NDArray[np.float32] = self.reader.scores(self.head, states, batch, positions).cpu().numpy()
        return scores

    def _best(self, row: QuestionRow, scored: Sequence[tuple[ContextWindow, Any, Any, int]]) -> PredictedAnswer:
        """The best span of all windows, and by how much the lowest sum for no answer of a window beats it."""
        answer: tuple[float, int, int, float] | None = None  # sum, first and last token of the context, probability
        none, silence = np.inf, 0.0
        for window, first, last, summary in sorted(scored, key=lambda entry: entry[0].begin):
            total = _logsumexp(first) + _logsumexp(last)
            nothing = float(first[summary] + last[summary])
            if nothing < none:
                none, silence = nothing, float(np.exp(nothing - total))
            best = best_span(first[window.columns], last[window.columns], self.max_answer_length, window.begins)
            if best is not None and (answer is None or best.score > answer[0]):
                answer = best.score, window.begin + best.first, window.begin + best.last, float(np.exp(best.score - total))
        if answer is None:  # an empty context
            return PredictedAnswer("", 0, 0, 0.0, np.inf, silence)
        start, stop = _trimmed(row.record.context, int(row.start[answer[1]]), int(row.stop[answer[2]]))
        return PredictedAnswer(row.record.context[start:stop], start, stop, answer[3], none - answer[0], silence)

    def compute_metrics(self, per_example: Sequence[JudgedQuestion]) -> dict[str, float]:
        """Exact match and F1 at the stored threshold, where there is one."""
        if not per_example:
            raise TaskError("no questions with answers to measure on.")
        return compute_metrics(per_example, self.threshold)

    def measure(
        self, rows: Sequence[LabelledRow], metric: str | None = None, *, size: int = 64, report: Report = silent
    ) -> dict[str, float]:
        """The metrics at the best threshold for F1, which is one of them; without unanswerable questions there is none."""
        per_example: Any = self.per_example(rows, metric, size=size, report=report)
        if not per_example:
            raise TaskError("no questions with answers to measure on.")
        if all(question.answerable for question in per_example):
            return compute_metrics(per_example, None)
        best = best_threshold(
            [question.margin for question in per_example], [question.silent.f1 for question in per_example],
            [question.answered.f1 for question in per_example],
        )
        return {**compute_metrics(per_example, best), "threshold": best}

    def remarks(
        self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: Sequence[JudgedQuestion]
    ) -> list[str]:
        """How many questions have no answer, which this model always gives, and how many were cut."""
        remarks = []
        count = sum(not question.answerable for question in per_example)
        if 0 < count < len(per_example):
            remarks.append(best_remark(per_example))
        if count and self.threshold is None:
            remarks.append(
                f"{count} questions have no answer, and this model always gives one: there were none on its dev set, so no "
                "threshold was chosen"
            )
        lost = sum(row.inputs.cut["question"] > 0 for row in rows)
        if lost:
            remarks.append(
                f"{lost} questions were longer than half a row and lost their ends (fine-tune with --set length=N to read more)"
            )
        return remarks

    def predictions(
        self, examples: Questions, rows: Sequence[QuestionRow], outputs: Sequence[PredictedAnswer]
    ) -> list[ExtractedAnswer]:
        """The answer to every question: text, characters and probability."""
        answers = []
        for row, predicted in zip(rows, outputs, strict=True):
            about = row.record.line, row.record.name, row.record.question
            if not predicted.text or (self.threshold is not None and predicted.margin > self.threshold):
                answers.append(ExtractedAnswer(*about, "", None, None, round(predicted.none, 6)))
            else:
                answers.append(ExtractedAnswer(
                    *about, predicted.text, predicted.start, predicted.stop, round(predicted.probability, 6)
                ))
        return answers


def best_remark(per_example: Sequence[JudgedQuestion]) -> str:
    """The best exact match and F1 that a threshold reaches on these questions, each with its own (`find_all_best_thresh` of SQuAD
    2's script)."""
    margins = [question.margin for question in per_example]
    figures = []
    for name, score_of in _SCORES.items():
        silent, answered = (
            [score_of(scores) for scores in column]
            for column in zip(*((question.silent, question.answered) for question in per_example), strict=True)
        )
        threshold = best_threshold(margins, silent, answered)
        figures.append(f"{name} {compute_metrics(per_example, threshold)[name]:.4f} (margin {threshold:.3f})")
    return f"the best thresholds for these questions, as SQuAD 2's script reports them: {figures[0]}, {figures[1]}"


def compute_metrics(per_example: Sequence[JudgedQuestion], threshold: float | None) -> dict[str, float]:
    """Exact match and F1 where questions whose margin is above the threshold are not answered."""
    scores = [
        question.silent if threshold is not None and question.margin > threshold else question.answered
        for question in per_example
    ]
    metrics = means(scores, [question.answerable for question in per_example])
    overlaps = [
        float(not question.answerable) if threshold is not None and question.margin > threshold else question.overlap
        for question in per_example if question.overlap is not None
    ]
    return {**metrics, **of_time(overlaps)} if overlaps else metrics


def of_time(overlaps: Sequence[float]) -> dict[str, float]:
    """The mean overlap of time of answers with the right ones, and the mean F1 of their time: 2 o / (1 + o) of an overlap o.

    >>> of_time([0.25, 0.25])
    {'aos': 0.25, 'frame_f1': 0.4}
    """
    shares = np.array(overlaps)
    return {"aos": float(shares.mean()), "frame_f1": float((2 * shares / (1 + shares)).mean())}


def _logsumexp(scores: NDArray[np.float32]) -> float:
    most = float(scores.max())
    return most + float(np.log(np.exp(scores.astype(np.float64) - most).sum()))


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """A stretch without the white space at its ends, which tokens of some vocabularies cover."""
    while start < stop and text[start].isspace():
        start += 1
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    return start, stop
