"""Tasks whose examples are rows of a table with one or two texts, and learners that score a summary of such texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.corpus.readers.labelled import OPTION, UNTRAINED, Format, ListCell, Quoting, TextTable, Trained, read_table
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, evaluating
from cloze.errors import Parameter, TaskError, propose
from cloze.tasks.pictures import picture_numbers, with_picture
from cloze.tasks.task import Learner, Report, Task, require_head, silent

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T", bound="TableTask")
J = TypeVar("J", bound="ObjectTask")
LABEL, TEXT_B, PICTURE = OPTION.sibling("label", "NAME"), OPTION.sibling("text_b", "NAME"), Parameter("corpus.picture", "NAME")
_SHOWN = 8  # of the labels that a file gives by their numbers


@dataclass(frozen=True)
class LabelledTexts(Generic[A]):
    """Texts, what stands next to each (a second text, or the texts to choose from; None for tasks on one text), labels (None if
    the file has none), their file and lines, and the keys of the pictures that they are about, and of second ones (None for
    tasks without them)."""

    texts: list[str]
    others: list[Any] | None
    labels: list[A] | None
    path: str
    lines: tuple[int, ...]
    pictures: list[str] | None = None
    pictures_b: list[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The text of every example, or its two."""
        return zip(self.texts) if self.others is None else zip(self.texts, self.others, strict=True)

    def with_lines(self) -> Iterator[tuple[int, str, Any]]:
        """The line of every example, its text and its second text, None for tasks on one text."""
        second_texts: Sequence[Any] = [None] * len(self) if self.others is None else self.others
        return zip(self.lines, self.texts, second_texts, strict=True)

    def require_labels(self) -> list[A]:
        """The labels. Raises a `TaskError` if the file has none."""
        if self.labels is None:
            raise TaskError(f"{self.path}: has no answers; expected one in every row.")
        return self.labels


#: Texts with labels.
Examples = LabelledTexts[str]


@dataclass(frozen=True)
class TableTask(Task):
    """A task on one text, or with `text_b` on two: names of columns, and how a file is written (see `read_table`). `trained` is
    what the model of a folder was trained on. `lists`: cells may be lists."""

    text: str = "text"
    text_b: str | None = None
    label: str = "label"
    columns: tuple[str, ...] | None = None
    format: Format | None = None
    quoting: Quoting = "auto"
    trained: Trained = UNTRAINED

    lists: ClassVar[bool] = False

    def for_files(self: T, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> T:
        """The same task for files in another format."""
        return replace(self, columns=tuple(columns) if columns else None, format=format, quoting=quoting)

    def table(self, path: Path | str) -> TextTable:
        """The rows of a file."""
        return read_table(
            path, format=self.format, columns=self.columns, quoting=self.quoting, trained=self.trained, lists=self.lists
        )

    def rows_of(self, path: Path | str) -> TextTable | None:
        """The rows of a file in which each is an example; None for other files."""
        return self.table(path)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": {"text": self.text, "text_b": self.text_b, "label": self.label}}


@dataclass(frozen=True)
class TextTask(TableTask):
    """A task whose examples are texts with labels. `picture` is the column with the key of the picture that a row is about, and
    `picture_b` that of a second one; None: there is none."""

    picture: str | None = None
    picture_b: str | None = None

    def read(self, path: Path | str, *, labelled: bool = True) -> LabelledTexts[Any]:
        """The examples of a file; with `labelled=False`, labels are read if the column is there."""
        table = self.table(path)
        texts = table.column(self.text, OPTION)
        second_texts = self.others(table, table.column(self.text_b, TEXT_B)) if self.text_b is not None else None
        labels = self.read_labels(table, second_texts) if labelled or self.label in table.columns else None
        keys = [None if name is None else table.column(name, PICTURE) for name in (self.picture, self.picture_b)]
        return LabelledTexts(texts, second_texts, labels, table.path, table.lines, *keys)

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": with_picture(super().description()["columns"], self.picture, self.picture_b)}

    def others(self, table: TextTable, cells: list[str]) -> list[Any]:
        """What stands next to the text of every row, from the cells of the column `text_b`."""
        return cells

    def read_labels(self, table: TextTable, second_texts: list[Any] | None) -> list[Any]:
        """The label of every row. Raises a `TaskError` with file and line if one is invalid."""
        return parsed(table, table.column(self.label, LABEL), self.parse_label, f"{self.label!r} is ")

    def parse_label(self, cell: Any) -> Any:
        """The label in a cell. Raises a `ValueError` with the reason if it is invalid."""
        return cell


@dataclass(frozen=True)
class ObjectTask(Task):
    """A task whose files are JSON, which says what its fields are. `files` completes the sentence that refuses columns. `picture`
    is the field with the key of the picture that a text is about, in JSON lines."""

    picture: str | None = field(default=None, kw_only=True)

    files: ClassVar[str] = "JSON lines"

    def for_files(self: J, *, columns: Sequence[str] | None, format: Format | None, quoting: Quoting) -> J:
        """The same task."""
        if columns or format not in (None, "jsonl"):
            raise TaskError(f"--columns and --format are for tables; {self.name} reads {self.files}. Leave them out.")
        return self


def parsed(table: TextTable, cells: Iterable[C], parse: Callable[[C], Any], lead: str = "") -> list[Any]:
    """What `parse` makes of the cell of every row; a `ValueError` becomes a `TaskError` with file, line, `lead` and reason."""
    values = []
    for cell, line in zip(cells, table.lines, strict=True):
        try:
            values.append(parse(cell))
        except ValueError as error:
            raise TaskError(f"{table.path}:{line}: {lead}{error}") from None
    return values


def label_ids(
    examples: Examples, label_names: Sequence[str], among: str = "in the training examples", *, numbered: bool = False
) -> NDArray[np.int64]:
    """The labels as indices into `label_names` (N,); see `label_numbers`."""
    if examples.labels is None:
        raise TaskError(f"{examples.path}: has no labels; expected a label in every row.")
    labels = [[label] for label in examples.labels]
    numbers = label_numbers(examples.path, examples.lines, labels, label_names, among, numbered=numbered)
    return np.array([number for (number,) in numbers], np.int64)


def label_numbers(
    path: str, lines: Sequence[int], labels: Sequence[Sequence[str]], label_names: Sequence[str],
    among: str = "in the training examples", *, numbered: bool = False,
) -> list[list[int]]:
    """The labels of every row as indices into `label_names`. Raises a `TaskError` with file and line for a label that does not
    occur `among` them. `numbered`: a file may have the numbers of the labels in their place."""
    among = "in config.json" if numbered else among
    indices = {label: number for number, label in enumerate(label_names)}
    names = names_of_numbers(chain.from_iterable(labels), label_names, numbered=numbered)
    indices |= {number: indices[label] for number, label in names.items()}
    for row, line in zip(labels, lines, strict=True):
        for label in row:
            if label not in indices:
                raise TaskError(f"{path}:{line}: the label {label!r} does not occur {among}. {propose(str(label), label_names)}")
    return [[indices[label] for label in row] for row in labels]


def names_of_numbers(labels: Iterable[str], label_names: Sequence[str], *, numbered: bool) -> dict[str, str]:
    """The labels by their numbers in `label_names` if all labels of a file are whole numbers and no name of a label looks like
    one; else none."""
    numbers = set(labels) if numbered and not any(label.lstrip("-").isdigit() for label in label_names) else set()
    if not all(label.isdigit() for label in numbers):
        return {}
    return {str(number): label for number, label in enumerate(label_names) if str(number) in numbers}


def remark_on_numbers(names: Mapping[str, str]) -> list[str]:
    """A sentence on labels that a file gives by their numbers; none if it gives none so."""
    pairs = ", ".join(f"{number} is {label}" for number, label in list(names.items())[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"the labels of the file are read as the numbers that config.json gives them: {pairs}{more}"] if names else []


class SummaryLearner(Learner):
    """A learner whose head scores the summary of a text: the state of one token, or pooled states.

    From texts to scores: `encode` (the template of `reading:` around the token ids), `Reader.batch` (padding), `Reader.states`
    (the network), `Reader.scores` (the head).
    """

    def encode(self, examples: LabelledTexts[Any]) -> list[Any]:
        """The examples as the network reads them."""
        return self.with_pictures(self.reader.encode(examples.texts, examples.others, max_length=self.length), examples)

    def texts_of(self, examples: LabelledTexts[Any]) -> Sequence[str]:
        """The texts; of a pair, both."""
        return [" ".join(row) for row in examples.rows()]

    def remarks_on_texts(self, examples: LabelledTexts[Any]) -> list[str]:
        """Also on texts that are lists in the file."""
        lists = sum(any(isinstance(text, ListCell) for text in row) for row in examples.rows())
        read = f"{lists} of {len(examples)} texts are lists, which are read with their brackets and quotes"
        return [*super().remarks_on_texts(examples), *([read] if lists else [])]

    def with_pictures(self, rows: list[Framed], examples: LabelledTexts[Any]) -> list[Any]:
        """Framed rows next to the pictures of their examples."""
        return [replace(row, picture=number) for row, number in zip(rows, picture_numbers(self.reader, examples), strict=True)]

    def scores(self, rows: Sequence[Framed]) -> Tensor:
        """Scores (B, C) of framed rows in fp32."""
        batch = self.reader.batch(rows)
        states = self.reader.states(batch, self.head.reads)
        positions = text_ends(rows, batch["tokens"].shape[1]) if self.head.of_texts else torch.arange(len(rows))
        scores = self.reader.scores(self.head, states, batch, positions.to(self.reader.device))
        return scores if scores.dim() > 1 else scores[:, None]

    @torch.inference_mode()
    def all_scores(self, framed: Sequence[Framed], size: int = 64, report: Report = silent) -> NDArray[np.float32]:
        """The scores of every row (N, C), in the order of the rows; runs in eval mode."""
        scores: NDArray[np.float32] | None = None
        with evaluating(self):
            for index in self.reader.batches([len(row) for row in framed], rows=size):
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


def head_of_task(loaded: Checkpoint, task_json: Mapping[str, Any], default: str | None = None) -> Any:
    """The head that task.json names. If it names none: the first head on a text's summary, else `default` (None: the first
    head)."""
    summaries = [name for name, head in loaded.heads.items() if head.kind == "relation_prediction"]
    fallbacks = tuple(loaded.heads) if default is None else (default,)
    return require_head(loaded, str(task_json["head"] or (*summaries, *fallbacks, "relation_prediction")[0]))
