"""Questions about texts whose answers are spans of those texts: JSON in SQuAD's format, or one question per row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.objects import objects, refuse_table
from cloze.corpus.readers.text_files import lines, read_all
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError, propose
from cloze.untrusted import without_surrogates


class AnswerSpan(NamedTuple):
    """An answer as the file has it: its text, and the offset in the context that the file states, in characters."""

    text: str
    start: int

    def placed(self, context: str) -> bool:
        """Whether the context contains the answer at its start offset."""
        return self.start >= 0 and context.startswith(self.text, self.start)


@dataclass(frozen=True)
class QuestionRecord:
    """A question: its line and its name in the file, its context, and its answers (empty if the context does not answer it).

    `answers` is None where the file has no answers.
    """

    line: int
    place: str
    name: str
    question: str
    context: str
    answers: tuple[AnswerSpan, ...] | None


@dataclass(frozen=True)
class Questions:
    """The questions of a file, and the keys of the pictures that they are about (None for tasks without pictures)."""

    each: list[QuestionRecord]
    path: str
    pictures: list[str] | None = None

    def __len__(self) -> int:
        return len(self.each)


class QuestionFields(NamedTuple):
    """What the fields of a question are called."""

    question: str = "question"
    context: str = "context"
    answers: str = "answers"


NAMES = QuestionFields()


def read_questions(path: Path | str, names: QuestionFields = NAMES, *, labelled: bool = True) -> Questions:
    """All questions of a file; without `labelled`, answers are optional. Faults are `TaskError`s with file and line."""
    questions = list(each_question(path, names, labelled=labelled))
    return Questions(questions, str(path))


def each_question(
    path: Path | str, names: QuestionFields = NAMES, *, labelled: bool = True, fault: Fault | None = None
) -> Iterator[QuestionRecord]:
    """The questions of a file in order. A question that cannot be used is reported to `fault`, if given, and skipped.

    SQuAD's shape, version 1 or 2: `{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": [{"text":
    …, "answer_start": …}], "is_impossible": …}]}]}]}`, or a list of its paragraphs. JSON lines, a list, or a list in
    `{"data": …}` (run_qa.py of transformers): `{"question": …, "context": …, "answers": …}`, the answers as in SQuAD or
    `{"text": […], "answer_start": […]}`; the same as columns of Parquet. A question without answers, or with `is_impossible`,
    is not answered by its context. `answer_start` counts characters (Unicode code points).
    """
    empty = True
    for line, location, raw in _rows(path, names, fault):
        try:
            question = _record(line, location, raw, names, labelled)
        except _Wrong as wrong:
            unusable(path, line, f"{location}{': ' if location else ''}{wrong}", fault=fault)
        else:
            empty = False
            yield question
    if empty and fault is None:
        raise TaskError(f"{path}: no questions; expected at least one.")


_SPACE = (" ", "\t", "\n", "\r")  # of JSON
_ASKED = "qas"  # the questions about a paragraph
_FORM = (
    '{"question": "Who saw the dog?", "context": "Anna saw the dog.", "answers": [{"text": "Anna", "answer_start": 0}]}'
    "\n  answer_start is the number of characters before the answer. SQuAD's JSON is read, too."
)


class _Wrong(Exception):
    """What is wrong with a question."""


_Row = tuple[int, str, dict[str, Any]]  # line, place, the question with its context


def _rows(path: Path | str, names: QuestionFields, fault: Fault | None) -> Iterator[_Row]:
    refuse_table(path, _FORM)
    if str(path) != "-" and not is_columnar(path) and _is_document(path):
        yield from _Document(path, read_all(path)).questions(names, fault)
        return
    for line, record in objects(path, fault):
        if names.question not in record and ("data" in record or _ASKED in record):
            yield from _Document(path, json.dumps(record, ensure_ascii=False), first=line).questions(names, fault)
        else:
            yield line, "", record


def _is_document(path: Path | str) -> bool:
    """Whether a file is one JSON document: its first line is not an object of its own."""
    first = next((line.text for line in lines(path) if line.text.strip()), "")
    try:
        return "data" in json.loads(first)
    except (ValueError, TypeError, RecursionError):
        return first.lstrip()[:1] in ("{", "[")


class _Document:
    """A JSON document that knows the line of each of its values."""

    def __init__(self, path: Path | str, text: str, *, first: int = 1) -> None:
        self.path, self.text = path, text
        self.decoder = json.JSONDecoder()
        self._seen = 0, first  # a place and its line

    def questions(self, names: QuestionFields, fault: Fault | None) -> Iterator[_Row]:
        """The questions with their lines and places; the whole document is decoded first, so that errors come early."""
        begin = self._skip(0)
        if self._skip(self._decoded(begin)[1]) < len(self.text):
            raise TaskError(f"{self.path}: not JSON: there is more text after the document.")
        document = self._decoded(begin)[0]
        if isinstance(document, list):
            yield from self._array(begin, names, fault)
            return
        if isinstance(document, dict) and _ASKED in document:
            yield from self._paragraph(begin, self._line(begin), "", names, fault)
            return
        for a, (article, _) in enumerate(self._items(self._member(begin, "data", "the document"), "data")):
            inside, value = f"data[{a}]", self._decoded(article)[0]
            if isinstance(value, dict) and names.question in value:
                yield self._line(article), inside, value
                continue
            for p, (paragraph, line) in enumerate(self._items(self._member(article, "paragraphs", inside), inside)):
                yield from self._paragraph(paragraph, line, f"{inside}.paragraphs[{p}]", names, fault)

    def _array(self, begin: int, names: QuestionFields, fault: Fault | None) -> Iterator[_Row]:
        """The questions of a list of paragraphs, or of questions with their contexts."""
        for number, (item, line) in enumerate(self._items(begin, "the document")):
            value, where = self._decoded(item)[0], f"[{number}]"
            if isinstance(value, dict) and _ASKED in value:
                yield from self._paragraph(item, line, where, names, fault)
            elif isinstance(value, dict):
                yield line, where, value
            else:
                unusable(self.path, line, f"{where}: expected an object, got {type(value).__name__}.", fault=fault)

    def _paragraph(self, at: int, line: int, where: str, names: QuestionFields, fault: Fault | None) -> Iterator[_Row]:
        """The questions about one context."""
        context = self._context(at, line, where, names, fault)
        for q, (question, question_line) in enumerate(self._items(self._member(at, _ASKED, where), where)):
            value, location = self._decoded(question)[0], f"{where}{'.' if where else ''}{_ASKED}[{q}]"
            if not isinstance(value, dict):
                unusable(self.path, question_line, f"{location}: expected an object, got {type(value).__name__}.", fault=fault)
            elif context is not None:
                yield question_line, location, {**value, names.context: context}

    def _context(self, at: int, line: int, where: str, names: QuestionFields, fault: Fault | None) -> str | None:
        paragraph = self._decoded(at)[0]
        context = paragraph.get(names.context) if isinstance(paragraph, dict) else None
        if isinstance(context, str):
            return context
        unusable(self.path, line, f"{where}: no text {names.context!r}; expected one for the questions about it.", fault=fault)
        return None

    def _line(self, at: int) -> int:
        position, line = self._seen
        line += self.text.count("\n", position, at) if at >= position else -self.text.count("\n", at, position)
        self._seen = at, line
        return line

    def _decoded(self, at: int) -> tuple[Any, int]:
        """The value that begins at a place, and where it ends."""
        try:
            value, stop = self.decoder.raw_decode(self.text, self._skip(at))
        except RecursionError:
            raise TaskError(f"{self.path}:{self._line(at)}: not JSON: nested too deeply.") from None
        except ValueError as error:
            position, why = at, "a number of too many digits"
            if isinstance(error, json.JSONDecodeError):
                position, why = error.pos, error.msg
            column = position - self.text.rfind("\n", 0, position)
            raise TaskError(f"{self.path}:{self._line(position)}: not JSON: {why} at column {column}.") from None
        return value, stop

    def _skip(self, at: int) -> int:
        while self.text[at : at + 1] in _SPACE:
            at += 1
        return at

    def _member(self, at: int, name: str, where: str) -> int:
        """Where the value of an object's member begins."""
        line, opened = self._line(at), self.text[at] == "{"
        at = self._skip(at + 1)
        while opened and self.text[at] == '"':
            key, at = self._decoded(at)
            at = self._skip(self._skip(at) + 1)  # behind the colon
            if key == name:
                return at
            at = self._skip(self._decoded(at)[1])
            at = self._skip(at + 1) if self.text[at] == "," else at
        raise TaskError(
            f"{self.path}:{line}: {where}: no {name!r}; expected questions in SQuAD's format: "
            '{"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}.'
        )

    def _items(self, at: int, where: str) -> Iterator[tuple[int, int]]:
        """Where the items of a list begin, and their lines."""
        if self.text[at] != "[":
            raise TaskError(f"{self.path}:{self._line(at)}: {where}: expected a list.")
        at = self._skip(at + 1)
        while self.text[at] != "]":
            yield at, self._line(at)
            at = self._skip(self._decoded(at)[1])
            at = self._skip(at + 1) if self.text[at] == "," else at


def _record(line: int, location: str, raw: dict[str, Any], names: QuestionFields, labelled: bool) -> QuestionRecord:
    name = raw.get("id", "")
    question, context = (_text(raw, field) for field in (names.question, names.context))
    answers = _answers(raw, names.answers) if labelled or names.answers in raw else None
    return QuestionRecord(line, location, str(name), question, context, answers)


def _text(raw: dict[str, Any], field: str) -> str:
    if field not in raw:
        raise _Wrong(f"no field {field!r}. {propose(field, raw)}")
    if not isinstance(raw[field], str):
        raise _Wrong(f"the field {field!r} is {type(raw[field]).__name__}; expected a text.")
    return without_surrogates(raw[field])


def _answers(raw: dict[str, Any], field: str) -> tuple[AnswerSpan, ...]:
    if raw.get("is_impossible") is True:
        return ()
    if field not in raw:
        raise _Wrong(f"no field {field!r}. {propose(field, raw)} A question without an answer in its context has an empty list.")
    answers = raw[field]
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise _Wrong(f"{field!r}: expected as many texts as starts: {{\"text\": […], \"answer_start\": […]}}.")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(answers, list):
        raise _Wrong(f"{field!r} is not a list; expected [{{\"text\": …, \"answer_start\": …}}].")
    return tuple(_answer_span(answer, field) for answer in answers)


def _answer_span(answer: Any, field: str) -> AnswerSpan:
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text or not isinstance(start, int) or isinstance(start, bool):
        raise _Wrong(
            f"{field!r}: {json.dumps(answer, ensure_ascii=False)[:60]} is no answer; expected a text and a whole number: "
            '{"text": …, "answer_start": …}.'
        )
    return AnswerSpan(without_surrogates(text), start)


def misplaced(answer: AnswerSpan, context: str) -> str:
    """A message about an answer that is not at its start offset in the context."""
    position = context.find(answer.text)
    where = f"it starts at {position}" if position >= 0 else "the context does not have it"
    if answer.start < 0:
        return f"the answer {_short(answer.text)} has no place in the context: answer_start is {answer.start}; {where}."
    passage = context[answer.start : answer.start + len(answer.text)]
    excerpt = f"the context has {_short(passage)}" if passage else "the context has ended"
    return f"the answer {_short(answer.text)} does not start at character {answer.start}, where {excerpt}; {where}."


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:30] + "…")
