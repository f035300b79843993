"""Two texts that belong together: a question and the passage that answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Block, Columns, Encoder, Record
from cloze.corpus.records.table import table_rows, wanted_columns
from cloze.corpus.records.windows import Shown
from cloze.errors import TaskError
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


@register("answer", "match")
class MatchAnswer(Answer):
    """No label: the second text belongs to the first, and the second texts of other records do not."""

    columns: ClassVar[Mapping[str, Any]] = {}
    gives: ClassVar[frozenset[str]] = frozenset()

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table; a row with an empty text cannot be used."""
        if columns.text_b is None:
            raise TaskError("corpus.text_b: matching texts come in pairs. Name the column of the second.")
        wanted = {name: option for name, option in wanted_columns(columns).items() if name in columns.texts}
        for line, texts in table_rows(path, columns, fault, wanted):
            empty = [name for name, text in zip(columns.texts, texts, strict=True) if not text.strip()]
            if empty:
                unusable(path, line, f"an empty {empty[0]!r}; expected two texts in every row.", fault)
            else:
                yield Record(line, texts, None)

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _MatchEncoder:
        """The encoder of records."""
        return _MatchEncoder(tokenizer)

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """No fields: `parts` holds the position of the second text."""
        return {}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """Empty: there is no most frequent answer."""
        return {}


class _MatchEncoder(Encoder):
    def __call__(self, records: Sequence[Record], path: str) -> Block:
        return Block(*self.texts(records), {})
