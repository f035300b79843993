"""The class of a record that may have none, such as the answer to a question about a picture that also has captions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import members
from cloze.corpus.readers.unusable import Fault
from cloze.corpus.records.answer import Block, Columns, Labels, Record
from cloze.corpus.records.classes import ClassAnswer, ClassEncoder
from cloze.corpus.records.table import table_rows
from cloze.corpus.records.windows import Shown
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


@register("answer", "class_or_none")
class ClassOrNone(ClassAnswer):
    """As `class`, but the label may be empty: `column/label` is then -1, as it is for every record of a store without labels.
    A list of texts in JSON lines, such as several captions of one picture, becomes a record for each."""

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table."""
        for line, (first, *others, label) in table_rows(path, columns, fault):
            yield from (Record(line, (text, *others), label.strip()) for text in members(first) if text is not None)

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,)."""
        return {"column/label": stored.get("label", np.full(len(shown.kept), -1, np.int32))}

    def labels_of(self, record: Record) -> Iterator[tuple[int, str]]:
        """The line and the class of a record that has one."""
        yield from super().labels_of(record) if record.answer else ()

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> ClassEncoder:
        """The encoder of records."""
        return _Encoder(tokenizer, Labels(classes))


class _Encoder(ClassEncoder):
    def __call__(self, records: Sequence[Record], path: str) -> Block:
        codes = [
            self.labels.known_code(record.answer, f"{path}:{record.line}") if record.answer else -1 for record in records
        ]
        return Block(*self.texts(records), {"label": np.array(codes, np.int32)})
