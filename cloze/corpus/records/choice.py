"""Multiple choice: which of several texts is right, such as the more plausible cause or the next sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.columnar import ClassName
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Record, RecordEncoder
from cloze.corpus.records.table import table_rows
from cloze.corpus.records.windows import TextParts
from cloze.registry import register
from cloze.untrusted import parse_json

_NUMBER = re.compile(r"\d{1,9}")


class _ChoiceEncoder(RecordEncoder):
    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], None]:
        return {"label": np.array([record.answer for record in records], np.int32)}, None


@register("answer", "choice")
class ChoiceAnswer(Answer):
    """The number of the right text, from 0, in the list that the second text column holds.

    Lists may have different lengths. A class that `datasets` stored counts as its number there.
    """

    columns: Mapping[str, Any] = {"label": np.int32}
    encodes = _ChoiceEncoder
    gives: frozenset[str] = frozenset({"column/label"})
    lists: ClassVar[bool] = True

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of JSON lines or of a table whose cells hold JSON lists."""
        for line, (*texts, offered, label) in table_rows(path, columns, fault):
            try:
                choices = choices_of(offered, str(columns.text_b))
                yield Record(line, (*texts, *choices), number_among(label, len(choices), columns.label))
            except ValueError as error:
                unusable(path, line, str(error), fault=fault)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,)."""
        return {"column/label": stored["label"]}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How often each number is the right one, and the most frequent."""
        counts = np.bincount(stored["label"])
        return {
            "constant_answer": str(int(counts.argmax())) if len(counts) else "0",
            "label_counts": {str(number): int(count) for number, count in enumerate(counts)},
        }


def choices_of(cell: str, name: str) -> list[str]:
    """The texts of a JSON list; any other cell is a `ValueError` with the reason."""
    try:
        choices = parse_json(cell)
    except json.JSONDecodeError:
        choices = None
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise ValueError(f'{name!r} is {cell[:60]!r}; expected a JSON list of texts, such as ["one", "another"].')
    empty = [number for number, choice in enumerate(choices) if not choice.strip()]
    if empty:
        raise ValueError(f"{name!r} offers an empty text (number {empty[0]}, counted from 0).")
    return choices


def number_among(cell: str, count: int, name: str) -> int:
    """A cell as the number of one of `count` texts; any other cell is a `ValueError` with the reason.

    The name of a class, such as "choice1", counts as its number.
    """
    if isinstance(cell, ClassName) and cell.number < count:
        return cell.number
    if isinstance(cell, ClassName):
        raise ValueError(f"{name!r} is {cell[:40]!r}, the class {cell.number}; expected a class from 0 to {count - 1}.")
    if not _NUMBER.fullmatch(cell.strip()) or int(cell) >= count:
        hint = " The first text is 0: if it is 1 in your file, subtract 1 from every label." if cell.strip() == str(count) else ""
        raise ValueError(f"{name!r} is {cell[:40]!r}; expected the number of the right text, from 0 to {count - 1}.{hint}")
    return int(cell)
