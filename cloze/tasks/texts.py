"""Tasks whose examples are rows of a table with one or two texts, and learners that score a summary of such texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.readers.labelled import OPTION, UNTRAINED, Format, Quoting, Table, Trained, read_table
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import by_length
from cloze.decoding.reader import Checkpoint, evaluating
from cloze.errors import CheckpointError, Parameter, TaskError
from cloze.tasks.pictures import numbers_of, with_picture
from cloze.tasks.task import Learner, Report, Unsearched

A = TypeVar("A")
T = TypeVar("T", bound="TableTask")


@dataclass(frozen=True)
class AnsweredTexts(Generic[A]):
    """Texts, second texts (None for tasks on one text), answers (None if the file has none), their file and lines, and the keys
    of the pictures that they are about (None for tasks without pictures)."""

    texts: list[str]
    others: list[str] | None
    answers: list[A] | None
    path: str
    lines: tuple[int, ...]
    pictures: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The texts of every example: one, or two."""
        return zip(self.texts) if self.others is None else zip(self.texts, self.others, strict=True)

    def known(self) -> list[A]:
        """The answers; if the file has none, a `TaskError`."""
        if self.answers is None:
            raise TaskError(f"{self.path}: has no answers; expected one in every row.")
        return self.answers


@dataclass(frozen=True)
class TableTask(Unsearched):
    """A task on one text, or with `text_b` on two: names of columns, and how a file is written (see `read_table`). `trained` is
    what the model of a folder was trained on."""

    text: str = "text"
    text_b: str | None = None
    label: str = "label"
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    quoting: Quoting = "auto"
    trained: Trained = UNTRAINED

    does: ClassVar[str] = "writes none"

    def reading(self: T, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> T:
        """The same task for files in another format."""
        return replace(self, columns=tuple(columns) if columns else None, format=format, quoting=quoting)

    def table(self, path: Path | str) -> Table:
        """The rows of a file."""
        return read_table(path, format=self.format, columns=self.columns, quoting=self.quoting, trained=self.trained)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": {"text": self.text, "text_b": self.text_b, "label": self.label}}


@dataclass(frozen=True)
class TextTask(TableTask, ABC):
    """A task whose examples are texts with answers. `picture` is the column with the key of the picture that a row is about;
    None: rows are about texts alone."""

    picture: str | None = None

    def read(self, path: Path | str, *, labelled: bool = True) -> AnsweredTexts[Any]:
        """The examples of a file; with `labelled=False`, answers are optional."""
        table = self.table(path)
        texts = table.column(self.text, OPTION)
        others = table.column(self.text_b, OPTION.sibling("text_b", "NAME")) if self.text_b is not None else None
        answers = self.answers(table) if labelled or self.label in table.columns else None
        pictures = table.column(self.picture, Parameter("corpus.picture", "NAME")) if self.picture is not None else None
        return AnsweredTexts(texts, others, answers, table.path, table.lines, pictures)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": with_picture(super().description()["columns"], self.picture)}

    @abstractmethod
    def answers(self, table: Table) -> list[Any]:
        """The answer of every row; an invalid one is a `TaskError` with file and line."""


@dataclass(frozen=True)
class CellTask(TextTask):
    """A task whose answers are the cells of a column, parsed one by one."""

    def answers(self, table: Table) -> list[Any]:
        """The answers in a table's column."""
        answers = []
        for cell, line in zip(table.column(self.label, OPTION.sibling("label", "NAME")), table.lines, strict=True):
            try:
                answers.append(self.answer(cell))
            except ValueError as error:
                raise TaskError(f"{table.path}:{line}: {self.label!r} is {error}") from None
        return answers

    @abstractmethod
    def answer(self, cell: str) -> Any:
        """The answer in a cell; a `ValueError` with the reason if it is invalid."""


@dataclass(frozen=True)
class Answered(Generic[A]):
    """A framed example and its answer."""

    framed: Framed
    answer: A

    @property
    def cut(self) -> Mapping[str, int]:
        """How many tokens did not fit."""
        return {"text": self.framed.cut}

    def __len__(self) -> int:
        return len(self.framed)


class SummaryLearner(Learner):
    """A learner whose head scores the summary of a text: the state of one token, or pooled states.

    From texts to scores: `encode` (the template of `reading:` around the token ids), `Reader.batch` (padding), `Reader.states`
    (the network), `Reader.scores` (the head).
    """

    def encode(self, examples: AnsweredTexts[Any]) -> list[Framed]:
        """The examples as the network reads them."""
        return self.shown(self.reader.encode(examples.texts, examples.others, max_length=self.length), examples)

    def texts_of(self, examples: AnsweredTexts[Any]) -> Sequence[str]:
        """The texts; of a pair, both."""
        return [" ".join(row) for row in examples.rows()]

    def shown(self, rows: list[Framed], examples: AnsweredTexts[Any]) -> list[Framed]:
        """Framed rows next to the pictures of their examples."""
        return [replace(row, picture=number) for row, number in zip(rows, numbers_of(self.reader, examples), strict=True)]

    def scores(self, rows: Sequence[Framed]) -> Tensor:
        """Scores (B, C) of framed rows in fp32."""
        batch = self.exact.batch(rows)
        states = self.exact.states(batch, self.head.reads)
        positions = text_ends(rows, batch["tokens"].shape[1]) if self.head.of_texts else torch.arange(len(rows))
        scores = self.exact.scores(self.head, states, batch, positions.to(self.exact.device))
        return scores if scores.dim() > 1 else scores[:, None]

    @torch.inference_mode()
    def all_scores(
        self, framed: Sequence[Framed], *, size: int = 64, report: Report = lambda done: None
    ) -> NDArray[np.float32]:
        """The scores of every row (N, C), in the order of the rows; runs in eval mode."""
        scores: NDArray[np.float32] | None = None
        with evaluating(self):
            for index in by_length([len(row) for row in framed], rows=size):
                scored = self.scores([framed[i] for i in index]).cpu().numpy()
                scores = np.empty((len(framed), scored.shape[1]), np.float32) if scores is None else scores
                scores[index] = scored
                report(len(index))
        return np.zeros((0, 1), np.float32) if scores is None else scores


def text_ends(rows: Sequence[Framed], width: int) -> Tensor:
    """The flat positions of the first and the last token of both texts of every row, (B, 4); of the row's first token if no token
    of a text is left."""
    positions = torch.zeros(len(rows), 4, dtype=torch.int64)
    for number, row in enumerate(rows):
        for text in (0, 1):
            columns = np.flatnonzero(row.part == text)
            if len(columns):
                positions[number, 2 * text : 2 * text + 2] = torch.tensor([int(columns[0]), int(columns[-1])])
    return positions + torch.arange(len(rows))[:, None] * width


def head_named(loaded: Checkpoint, described: Mapping[str, Any], usual: str | None = None) -> Any:
    """The head that task.json names. If it names none: the first head on a text's summary, else `usual` (None: the first
    head)."""
    summaries = [name for name, head in loaded.heads.items() if head.kind == "relation_prediction"]
    others = tuple(loaded.heads) if usual is None else (usual,)
    name = str(described["head"] or (*summaries, *others, "relation_prediction")[0])
    if name not in loaded.heads:
        raise CheckpointError(f"{loaded.folder}: the head {name!r} is missing; it has: {', '.join(loaded.heads) or 'none'}.")
    return loaded.heads[name]


def text_columns(line: int, text: str, text_b: str | None) -> dict[str, Any]:
    """The first keys of a prediction's JSON object; a task on one text has no `text_b`."""
    return {"line": line, "text": text, **({} if text_b is None else {"text_b": text_b})}


def each_text(examples: AnsweredTexts[Any]) -> list[dict[str, Any]]:
    """`text_columns` of every example."""
    others: Sequence[str | None] = examples.others if examples.others is not None else [None] * len(examples)
    return [text_columns(*row) for row in zip(examples.lines, examples.texts, others, strict=True)]

