"""A number as the answer of a record: how similar two texts are, how hard a text is to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.records.answer import Record, RecordEncoder
from cloze.corpus.records.table import CellAnswer
from cloze.corpus.records.windows import TextParts
from cloze.registry import register


class _NumberEncoder(RecordEncoder):
    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], None]:
        return {"label": np.array([record.answer for record in records], np.float32)}, None


@register("answer", "number")
class NumberAnswer(CellAnswer):
    """One number for each record, from a column of a table."""

    columns: Mapping[str, Any] = {"label": np.float32}
    encodes = _NumberEncoder
    gives: frozenset[str] = frozenset({"numbers/label"})

    def parse(self, cell: str) -> float:
        """A cell as a finite number."""
        return number_of(cell)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, 1)."""
        return {"numbers/label": stored["label"][:, None]}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The mean, for objectives that need it."""
        return {"mean": float(np.mean(stored["label"], dtype=np.float64))} if len(stored["label"]) else {}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The mean, which has the smallest squared error of all constants, and the minimum and maximum."""
        numbers = np.asarray(stored["label"], np.float64)
        if not len(numbers):
            return {}
        return {"constant_answer": f"{numbers.mean():.6g}", "least": float(numbers.min()), "greatest": float(numbers.max())}


def number_of(cell: str) -> float:
    """A cell as a number; one that is not finite, does not fit into 32 bits or is no number is a `ValueError` with the reason."""
    try:
        number = float(cell)
    except ValueError:
        hint = " Write decimals with a point." if "," in cell else ""
        raise ValueError(f"{cell[:40]!r}; expected a number such as 3.5.{hint}") from None
    if not isfinite(number) or abs(number) > float(np.finfo(np.float32).max):
        raise ValueError(f"{cell.strip()}; expected a finite number. Leave out rows that have none.")
    return number
