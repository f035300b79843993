"""The number that a record was given: how alike two texts are, how hard a text is to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import read_rows
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Block, Columns, Record
from cloze.corpus.records.classes import wanted_columns
from cloze.corpus.records.windows import Shown
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


@register("answer", "number")
class NumberAnswer:
    """One number for each record, from a column of a table."""

    columns: ClassVar[Mapping[str, Any]] = {"label": np.float32}
    coded: ClassVar[str | None] = None
    ragged: ClassVar[bool] = False
    gives: ClassVar[frozenset[str]] = frozenset({"numbers/label"})
    lists: ClassVar[bool] = False

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table; a row whose cell is no finite number cannot be used."""
        rows = read_rows(
            path, wanted_columns(columns), format=columns.format, columns=columns.names, quoting=columns.quoting, fault=fault
        )
        for line, (*texts, cell) in rows:
            try:
                yield Record(line, tuple(texts), number_of(cell))
            except ValueError as error:
                unusable(path, line, f"{columns.label!r} is {error}", fault)

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _NumberEncoder:
        """What encodes records."""
        return _NumberEncoder(tokenizer)

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, 1)."""
        return {"numbers/label": stored["label"][:, None]}

    def says(self, stored: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The mean, for objectives that ask for it."""
        return {"mean": float(np.mean(stored["label"], dtype=np.float64))} if len(stored["label"]) else {}

    def told(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The mean, which has the least squared error of all constants, and the least and the greatest number."""
        numbers = np.asarray(stored["label"], np.float64)
        if not len(numbers):
            return {}
        return {"usual": f"{numbers.mean():.6g}", "least": float(numbers.min()), "greatest": float(numbers.max())}


class _NumberEncoder:
    labels = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, records: Sequence[Record], path: str) -> Block:
        found = self.tokenizer.encode_flat([text for record in records for text in record.texts])
        return Block(*found, {"label": np.array([record.answer for record in records], np.float32)})


def number_of(cell: str) -> float:
    """A cell as a number; one that is none, is not finite or does not fit into 32 bits is a `ValueError` that says so."""
    try:
        found = float(cell)
    except ValueError:
        hint = " Write decimals with a point." if "," in cell else ""
        raise ValueError(f"{cell[:40]!r}; expected a number such as 3.5.{hint}") from None
    if not isfinite(found) or abs(found) > float(np.finfo(np.float32).max):
        raise ValueError(f"{cell.strip()}; expected a finite number. Leave out rows that have none.")
    return found
