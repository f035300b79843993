"""The probability of each class for a record, as another model gives them: soft labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import read_rows
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Block, Columns, Labels, Record, label_names
from cloze.corpus.records.classes import wanted_columns
from cloze.corpus.records.windows import Shown
from cloze.errors import TaskError, nearest
from cloze.registry import register
from cloze.untrusted import parse_json

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_ROUNDED = 1e-2  # as far from 1 may probabilities be in all


@register("answer", "scores")
class ScoresAnswer:
    """A JSON object with the probability of each class, `{"class": 0.9, …}`, which `cloze predict --scores` writes.

    The first row names the classes. A row with the name of a class has that one for certain, so that a dev set may have labels.
    """

    columns: ClassVar[Mapping[str, Any]] = {"label": np.float32}
    coded: ClassVar[str | None] = None
    ragged: ClassVar[bool] = True
    gives: ClassVar[frozenset[str]] = frozenset({"numbers/label"})
    lists: ClassVar[bool] = False

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of JSON lines, or of a table whose cells hold JSON objects."""
        rows = read_rows(
            path, wanted_columns(columns), format=columns.format, columns=columns.names, quoting=columns.quoting, fault=fault
        )
        for line, (*texts, cell) in rows:
            try:
                yield Record(line, tuple(texts), scores_of(cell))
            except ValueError as error:
                unusable(path, line, f"{columns.label!r} is {error}", fault)

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _ScoresEncoder:
        """What encodes records."""
        return _ScoresEncoder(tokenizer, None if classes is None else tuple(classes))

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, classes)."""
        return {"numbers/label": stored["label"]}

    def told(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, the mean probability of each, and the likeliest by that."""
        shares = np.asarray(stored["label"], np.float64).reshape(-1, len(classes)).mean(0)
        return {
            "labels": list(classes), "usual": classes[int(shares.argmax())],
            "label_shares": {label: round(float(share), 6) for label, share in zip(classes, shares, strict=True)},
        }


class _ScoresEncoder:
    def __init__(self, tokenizer: Tokenizer, names: tuple[str, ...] | None) -> None:
        self.tokenizer, self.names = tokenizer, names

    @property
    def labels(self) -> Labels | None:
        """The classes, once a row has named them."""
        return None if self.names is None else Labels(self.names)

    def __call__(self, records: Sequence[Record], path: str) -> Block:
        values = [self._row(record, path) for record in records]
        found = self.tokenizer.encode_flat([text for record in records for text in record.texts])
        return Block(
            *found, {"label": np.concatenate(values).astype(np.float32)}, np.array([len(one) for one in values], np.int64)
        )

    def _row(self, record: Record, path: str) -> NDArray[np.float64]:
        where, answer = f"{path}:{record.line}", record.answer
        if self.names is None:
            if isinstance(answer, str):
                raise TaskError(f"{where}: the label {answer!r}; expected the first row to hold a probability for each class.")
            self.names = label_names(list(answer))
        if isinstance(answer, str):
            if answer not in self.names:
                raise TaskError(f"{where}: the label {answer!r} is none of the classes. {nearest(answer, self.names)}")
            return np.array([float(name == answer) for name in self.names])
        if answer.keys() != set(self.names):
            raise TaskError(f"{where}: probabilities of {', '.join(answer)}; expected those of {', '.join(self.names)}.")
        row = np.array([answer[name] for name in self.names])
        return row / row.sum()


def scores_of(cell: str) -> dict[str, float] | str:
    """A cell as the probability of each class, or as the name of one; a cell that is neither is a `ValueError` that says so."""
    found: Any = None
    if cell.strip().startswith("{"):
        try:
            found = parse_json(cell)
        except json.JSONDecodeError:
            raise ValueError(f'{cell[:60]!r}; expected a JSON object such as {{"yes": 0.9, "no": 0.1}}.') from None
    if found is None:
        if not cell.strip():
            raise ValueError("empty; expected the probability of each class, or the name of one.")
        return cell.strip()
    numbers = list(found.values())
    legal = all(isinstance(one, (int, float)) and not isinstance(one, bool) and 0 <= one <= 1 + _ROUNDED for one in numbers)
    if len(numbers) < 2 or not legal:
        raise ValueError(f"{cell[:60]!r}; expected a probability for each of two classes or more.")
    if abs(sum(numbers) - 1) > _ROUNDED:
        raise ValueError(f"{cell[:60]!r}; its probabilities are {sum(numbers):g} in all, expected 1.")
    return {str(name): float(value) for name, value in found.items()}
