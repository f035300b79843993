"""The class of a record: sentiment, topic, the relation of two texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.class_folders import read_class_folders
from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.labelled import read_rows
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Block, Columns, Labels, Record, told_of_classes
from cloze.corpus.records.windows import Shown
from cloze.errors import TaskError, nearest
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

#: How a user names the columns.
_OPTIONS = ("--set corpus.text=NAME", "--set corpus.text_b=NAME", "--set corpus.label=NAME")


def wanted_columns(columns: Columns) -> dict[str, str]:
    """The columns of texts and answer, each with how a user names it."""
    return dict(zip((*columns.texts, columns.label), (*_OPTIONS[: len(columns.texts)], _OPTIONS[-1]), strict=True))


@register("answer", "class")
class ClassAnswer:
    """One class for each record, from a column of a table or from the name of a folder per class."""

    columns: ClassVar[Mapping[str, Any]] = {"label": np.int32}
    coded: ClassVar[str | None] = "label"
    ragged: ClassVar[bool] = False
    gives: ClassVar[frozenset[str]] = frozenset({"column/label"})
    lists: ClassVar[bool] = False

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table, or the texts of a folder per class where one text is read."""
        if columns.text_b is None and Path(path).is_dir() and not is_columnar(path):
            yield from (Record(number, (text,), label) for number, text, label in read_class_folders(path))
            return
        rows = read_rows(
            path, wanted_columns(columns), format=columns.format, columns=columns.names, quoting=columns.quoting, fault=fault
        )
        for line, (*texts, label) in rows:
            if label.strip():
                yield Record(line, tuple(texts), label.strip())
            else:
                unusable(path, line, f"an empty {columns.label!r}; expected a label in every row.", fault)

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The line and the class of a record."""
        yield record.line, record.answer

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _ClassEncoder:
        """What encodes records."""
        return _ClassEncoder(tokenizer, Labels(classes))

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,)."""
        return {"column/label": stored["label"]}

    def told(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, how often each occurs, and the most frequent one."""
        return told_of_classes(stored["label"], classes)


class _ClassEncoder:
    def __init__(self, tokenizer: Tokenizer, labels: Labels) -> None:
        self.tokenizer, self.labels = tokenizer, labels

    def __call__(self, records: Sequence[Record], path: str) -> Block:
        codes = np.array([self.labels.code(record.answer) for record in records], dtype=np.int32)
        if (codes < 0).any():
            record = records[int(np.flatnonzero(codes < 0)[0])]
            raise TaskError(
                f"{path}:{record.line}: the label {record.answer!r} does not occur in the training examples. "
                f"{nearest(record.answer, self.labels.numbers)}"
            )
        found = self.tokenizer.encode_flat([text for record in records for text in record.texts])
        return Block(*found, {"label": codes})
