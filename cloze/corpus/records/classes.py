"""The class of a record: sentiment, topic, the relation of two texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.labelled import members, single_class
from cloze.corpus.readers.not_text import refuse_made
from cloze.corpus.readers.text_files import read_all
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Labels, Record, RecordEncoder, described_classes
from cloze.corpus.records.audits import Audit, OddClasses
from cloze.corpus.records.table import has_column, table_rows
from cloze.corpus.records.windows import TextParts
from cloze.errors import TaskError
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_ENDINGS = (".txt", ".txt.gz", ".txt.xz")


class ClassEncoder(RecordEncoder):
    """Encodes records with a class each, -1 for none."""

    labels: Labels

    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], None]:
        """The numbers of the classes."""
        codes = [
            self.labels.known_code(record.answer, f"{path}:{record.line}") if record.answer else -1 for record in records
        ]
        return {"label": np.array(codes, np.int32)}, None


@register("answer", "class")
class ClassAnswer(Answer):
    """One class for each record, from a column of a table or from the name of a folder per class."""

    columns: Mapping[str, Any] = {"label": np.int32}
    coded: ClassVar[str | None] = "label"
    encodes = ClassEncoder
    gives: frozenset[str] = frozenset({"column/label"})

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table or, if records have one text, the texts of a folder per class."""
        if columns.text_b is None and Path(path).is_dir() and not is_columnar(path):
            yield from (Record(number, (text,), label) for number, text, label in read_class_folders(path))
            return
        for line, (*texts, label) in table_rows(path, columns, fault):
            try:
                yield Record(line, tuple(texts), single_class(label, columns.label))
            except ValueError as error:
                unusable(path, line, str(error), fault=fault)

    def also_has(self, path: Path | str, columns: Columns, name: str) -> bool:
        """Whether a table has a column `name`; a folder per class has none."""
        return (is_columnar(path) or not Path(path).is_dir()) and has_column(path, columns, name)

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The line and the class of a record."""
        yield record.line, record.answer

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """Also what notices odd names of classes."""
        return [*super().audits(tokenizer), OddClasses(lambda record: (record.answer,))]

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,)."""
        return {"column/label": stored["label"]}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How often each class occurs, for objectives that need it."""
        labels = np.asarray(stored["label"])
        return {"label_counts": np.bincount(labels[labels >= 0], minlength=len(classes)).tolist()}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, how often each occurs, and the most frequent one."""
        return described_classes(stored["label"], classes)


@register("answer", "class_or_none")
class ClassOrNone(ClassAnswer):
    """As `class`, but the label may be empty: `column/label` is then -1, as it is for every record of a store without labels.
    A list of texts in JSON lines, such as several captions of one picture, becomes a record for each."""

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table."""
        for line, (first, *more_texts, label) in table_rows(path, columns, fault):
            yield from (Record(line, (text, *more_texts), label.strip()) for text in members(first) if text is not None)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,)."""
        return {"column/label": stored.get("label", np.full(len(parts.kept), -1, np.int32))}

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The line and the class of a record that has one."""
        yield from super().labels_of(record) if record.answer else ()


class Filed(NamedTuple):
    """A text, its number from 1, and the name of its folder."""

    number: int
    text: str
    label: str


def read_class_folders(folder: Path | str) -> Iterator[Filed]:
    """A folder per class as labelled text (neg/1.txt, pos/1.txt): the texts of every sub-folder, in the order of their names.

    Hidden files and folders are passed over. A class without texts, a file that is not .txt, or an empty text is a `TaskError`:
    it must not be skipped silently. A folder that cloze or transformers wrote is a `CorpusError`.
    """
    number = 0
    refuse_made(Path(folder), Path(folder).glob("*/*"))
    classes = sorted(p for p in Path(folder).iterdir() if p.is_dir() and not p.name.startswith("."))
    if not classes:
        raise TaskError(
            f"{folder}: this folder has no subfolders; expected one per class, such as neg/1.txt and pos/1.txt, or a file."
        )
    for inside in classes:
        files = sorted(p for p in inside.iterdir() if not p.name.startswith("."))
        if not files:
            raise TaskError(f"{inside}: this class has no texts; expected .txt files.")
        for file in files:
            if not file.is_file() or not file.name.endswith(_ENDINGS):
                raise TaskError(f"{file}: expected a text file (.txt) in the folder of a class. Move it elsewhere.")
            text = read_all(file).strip()
            if not text:
                raise TaskError(f"{file}: the file is empty. Delete it.")
            number += 1
            yield Filed(number, text, inside.name)
