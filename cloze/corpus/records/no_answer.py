"""Texts without an answer, such as the captions of pictures that a network is pre-trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from cloze.corpus.readers.labelled import members
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Block, Columns, Encoder, Record
from cloze.corpus.records.table import table_rows, wanted_columns
from cloze.corpus.records.windows import Shown
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


@register("answer", "none")
class NoAnswer(Answer):
    """No label. A list of texts in JSON lines, such as several captions of one picture, becomes a record for each."""

    columns: ClassVar[Mapping[str, Any]] = {}
    gives: ClassVar[frozenset[str]] = frozenset()

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table; one without a text cannot be used."""
        wanted = {name: option for name, option in wanted_columns(columns).items() if name in columns.texts}
        for line, (first, *others) in table_rows(path, columns, fault, wanted):
            texts = [text for text in members(first) if text is not None and text.strip()]
            if not texts:
                unusable(path, line, f"an empty {columns.text!r}; expected a text in every row.", fault=fault)
            yield from (Record(line, (text, *others), None) for text in texts)

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _Encoder:
        """The encoder of records."""
        return _Encoder(tokenizer)

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """No fields."""
        return {}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """Empty: there is no most frequent answer."""
        return {}


class _Encoder(Encoder):
    def __call__(self, records: Sequence[Record], path: str) -> Block:
        return Block(*self.texts(records), {})
