"""Two texts that belong together: a question and the passage that answers it; and perhaps a third that does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Record, RecordEncoder
from cloze.corpus.records.table import table_rows, wanted_columns
from cloze.corpus.records.windows import TextParts
from cloze.errors import Parameter, TaskError
from cloze.registry import register


@register("answer", "match")
class MatchAnswer(Answer):
    """No label: the second text of a record belongs to the first, the second texts of other records do not."""

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table; a row with an empty text cannot be used."""
        if columns.text_b is None:
            raise TaskError("corpus.text_b: matching texts come in pairs. Name the column of the second.")
        options = {name: option for name, option in wanted_columns(columns).items() if name in columns.texts}
        for line, texts in table_rows(path, columns, fault, options):
            empty = [name for name, text in zip(columns.texts, texts, strict=True) if not text.strip()]
            if empty:
                unusable(path, line, f"an empty {empty[0]!r}; expected two texts in every row.", fault=fault)
            else:
                yield Record(line, texts, None)


class _TripletEncoder(RecordEncoder):
    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]:
        tokens, _, offsets = self.tokenizer.encode_flat([record.answer for record in records])
        return {"token": tokens}, np.diff(offsets)


@register("answer", "triplet")
class TripletAnswer(MatchAnswer):
    """As `match`, and each row has a third text in the column `wrong` that does not belong to the first: the companion `wrong`.

    `length` cuts it to so many tokens.
    """

    columns: Mapping[str, Any] = {"token": np.int32}
    encodes = _TripletEncoder
    ragged: ClassVar[bool] = True
    gives: frozenset[str] = frozenset({"wrong.tokens", "wrong.length"})

    def __init__(self, *, wrong: str = "wrong", length: Count | None = None) -> None:
        self.wrong, self.length = wrong, length

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table with three texts; a row with an empty one cannot be used."""
        if columns.text_b is None or self.wrong in columns.texts:
            raise TaskError("corpus.answer.wrong: a triplet has three columns: text, text_b and one of its own for `wrong`.")
        options = {name: option for name, option in wanted_columns(columns).items() if name in columns.texts}
        for line, texts in table_rows(path, columns, fault, {**options, self.wrong: Parameter("corpus.answer.wrong", "NAME")}):
            empty = [name for name, text in zip((*columns.texts, self.wrong), texts, strict=True) if not text.strip()]
            if empty:
                unusable(path, line, f"an empty {empty[0]!r}; expected three texts in every row.", fault=fault)
            else:
                yield Record(line, texts[:2], texts[2])

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`wrong.tokens` (B, K) and `wrong.length` (B,)."""
        tokens = stored["token"] if self.length is None else stored["token"][:, : self.length]
        filled = np.maximum(tokens, 0) if tokens.shape[1] else np.zeros((len(tokens), 1), np.int32)
        return {"wrong.tokens": filled.astype(np.int32), "wrong.length": (tokens >= 0).sum(1).astype(np.int32)}
