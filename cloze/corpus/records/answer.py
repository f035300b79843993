"""The base classes of the kinds of answers that a record may have."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import Format, Quoting
from cloze.corpus.readers.objects import OBJECTS, holds_objects
from cloze.corpus.readers.unusable import Fault
from cloze.corpus.records.audits import Audit, OddTexts
from cloze.corpus.records.record import Record
from cloze.corpus.records.windows import TextParts
from cloze.errors import TaskError, propose

if TYPE_CHECKING:
    from cloze.corpus.records.record_store import RecordStore
    from cloze.text.tokenizer import Tokenizer

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
_WHOLE = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True)
class Columns:
    """Which columns of a file are read and how the file is written: the values of the source `records`."""

    text: str
    text_b: str | None
    label: str
    names: tuple[str, ...] | None
    format: Format | None
    quoting: Quoting

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that hold texts."""
        return (self.text,) if self.text_b is None else (self.text, self.text_b)


class RecordBlock(NamedTuple):
    """Some records as they are stored.

    The tokens of all texts, `ids` (T,) with `word_start` (T,), and the `offsets` (texts + 1) of the texts among them. `columns`
    hold the answers: one value per record, or, with `counts` (records,), that many values. `nested` holds, for each level of
    `Answer.nested`, how many items each item of the level above it has. `inserted` are the places in the tokens of the texts
    before which others were put, in order.
    """

    ids: Int32
    word_start: NDArray[np.bool_]
    offsets: Int64
    columns: Mapping[str, NDArray[Any]]
    counts: Int64 | None = None
    nested: Mapping[str, Int64] = MappingProxyType({})
    inserted: Int64 = np.zeros(0, np.int64)


class RecordEncoder:
    """Encodes records into blocks, and collects their labels.

    `labels` are the classes so far, None for answers that are not classes. `given` holds further arguments for the objectives
    that learn the answers: those known only while encoding. Those that follow from the stored answers belong in
    `Answer.head_arguments`.
    """

    labels: Labels | None = None
    given: Mapping[str, int] = MappingProxyType({})

    def __init__(self, tokenizer: Tokenizer, labels: Labels | None = None) -> None:
        self.tokenizer, self.labels = tokenizer, labels

    @property
    def remarks(self) -> Sequence[str]:
        """Remarks on what was encoded for the user."""
        return ()

    @property
    def described(self) -> Mapping[str, Any]:
        """Further entries of task.json, about the training text as it was written."""
        return {}

    @property
    def constant_answer(self) -> str | None:
        """The most frequent answer, if answers are free texts."""
        return None

    def __call__(self, records: Sequence[Record], path: str) -> RecordBlock:
        """Encode records of a file for the store. Classes are numbered in the order of their appearance."""
        texts = self.tokenizer.encode_flat([text for record in records for text in record.texts])
        return RecordBlock(*texts, *self.answers(records, path))

    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], Int64 | None]:
        """The `columns` and the `counts` of a `RecordBlock`: none for records without an answer."""
        return {}, None


class Answer(ABC):
    """A kind of answer: how it is read and stored, and which fields it gives to the exercise.

    `columns`: the names and types of its stored columns; `coded` is the column that holds classes. `encodes` is its
    encoder. `ragged`: a record has several values. `nested`: for each column whose values have levels of their own, the names of
    these from the record down; `("chains", "mentions")` means that a record has several chains and a chain several mentions.
    Columns may share levels. `gives`: the fields for the exercise; those that begin with `column/` or `numbers/` are answers, of
    which an edit makes targets (`answer_sets` in `runs/recipe_tasks.py`). `lists`: the last column of texts holds a list of
    texts in each record. `tabular`: files may be tables with further columns.
    """

    columns: Mapping[str, Any] = {}
    coded: ClassVar[str | None] = None
    encodes: type[RecordEncoder] = RecordEncoder
    ragged: ClassVar[bool] = False
    nested: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    gives: frozenset[str] = frozenset()
    lists: ClassVar[bool] = False
    tabular: ClassVar[bool] = True

    @abstractmethod
    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The records of a file.

        A row that cannot be used is a `TaskError` with file and line. With `fault`, each of its problems is reported there and
        the row is skipped. A problem with the whole file is always a `TaskError`.
        """

    def also_has(self, path: Path | str, columns: Columns, name: str) -> bool:
        """Whether a file has a column `name`. Override it if files are tables, so that users hear of a text that is not read."""
        return False

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> RecordEncoder:
        """The encoder of records; `classes` are those of the training text, None if this is the training text."""
        return self.encodes(tokenizer, None if self.coded is None else Labels(classes))

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """The fields of some rows, from the stored values of their records, (B,) or (B, K) padded with -1 (nested ones with an
        axis for each level), the part of each text that the rows show (`parts`), and the number of classes."""
        return {}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The entries of task.json about the answers of the training text: `labels` if there are classes, and
        `constant_answer`.

        `stored` holds the columns of the store; if a record has several values, `bounds` delimits them, and a nested level is
        delimited by the array of its name.
        """
        return {}

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]] | None:
        """The labels of a record, each with its line; None for answers that are not labels."""
        return None

    def generated(self, record: Record) -> Sequence[str]:
        """The texts that are to be generated for a record; empty for answers that are not generated."""
        return ()

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """What looks for oddities in records that can be used; `tokenizer` is that of the network, if it is known."""
        return [OddTexts()]

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """Arguments for the objectives that learn these answers, from the stored answers and the classes of the training text."""
        return {}

    def require_items(self, store: RecordStore) -> None:
        """Raise a `TaskError` unless the items of a store fit these answers."""
        return

    def lost(self, stored: Mapping[str, NDArray[Any]], max_tokens: int) -> int | None:
        """How many records lose their answer if texts are cut to `max_tokens` tokens; None: cutting loses no answer."""
        return None


def described_classes(codes: NDArray[Any], classes: Sequence[str]) -> dict[str, Any]:
    """`labels`, how often each of them occurs among the codes (N,), ignoring -1, and the most frequent one."""
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    return {
        "labels": list(classes), "constant_answer": classes[int(counts.argmax())],
        "label_counts": {label: int(count) for label, count in zip(classes, counts, strict=True)},
    }


class Labels:
    """Numbers the distinct labels of a column, in the order of their appearance; `order` then gives their final numbers."""

    def __init__(self, classes: Sequence[str] | None = None) -> None:
        self.known = classes is not None
        self.numbers: dict[str, int] = {label: number for number, label in enumerate(classes or ())}

    def code(self, label: str) -> int:
        """The number of a label; -1 for one that is not among the given labels."""
        if label not in self.numbers and not self.known:
            self.numbers[label] = len(self.numbers)
        return self.numbers.get(label, -1)

    def known_code(self, label: str, where: str) -> int:
        """The number of a label; one that is not among the given labels is a `TaskError`, which begins with `where`."""
        code = self.code(label)
        if code < 0:
            raise TaskError(
                f"{where}: the label {label!r} does not occur in the training examples. {propose(label, self.numbers)}"
            )
        return code

    def order(self) -> tuple[tuple[str, ...], Int32]:
        """The labels in their final order, and for each number so far its final one."""
        names = label_names(list(self.numbers))
        positions = {label: number for number, label in enumerate(names)}
        if self.known:
            return tuple(self.numbers), np.arange(len(self.numbers), dtype=np.int32)
        return names, np.array([positions[label] for label in self.numbers], dtype=np.int32)


def label_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The distinct labels in order: by number if all are whole numbers, else alphabetically. The order in which `Labels.order`
    numbers classes, and in which `training_classes` lists them before training."""
    distinct = set(labels)
    if all(_WHOLE.fullmatch(label) for label in distinct):
        return tuple(sorted(distinct, key=lambda label: (int(label), label)))
    return tuple(sorted(distinct))


def has_keys(path: Path | str, answer: Answer, format: Format | None) -> bool:
    """Whether the rows of a file can name pictures: those of tables and of JSON lines can."""
    return answer.tabular or format in OBJECTS or format is None and holds_objects(path)
