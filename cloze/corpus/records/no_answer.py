"""Texts without an answer, such as the captions of pictures that a network is pre-trained on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cloze.corpus.readers.labelled import members
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Record
from cloze.corpus.records.table import table_rows, wanted_columns
from cloze.registry import register


@register("answer", "none")
class NoAnswer(Answer):
    """No label. A list of texts in JSON lines, such as several captions of one picture, becomes a record for each."""

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table; one without a text cannot be used."""
        options = {name: option for name, option in wanted_columns(columns).items() if name in columns.texts}
        for line, (first, *more_texts) in table_rows(path, columns, fault, options):
            texts = [text for text in members(first) if text is not None and text.strip()]
            if not texts:
                unusable(path, line, f"an empty {columns.text!r}; expected a text in every row.", fault=fault)
            yield from (Record(line, (text, *more_texts), None) for text in texts)
