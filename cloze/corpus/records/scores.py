"""Soft labels: the probability of each class for a record, from another model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.records.answer import Labels, Record, RecordEncoder, label_names
from cloze.corpus.records.table import CellAnswer
from cloze.corpus.records.windows import TextParts
from cloze.errors import TaskError, propose
from cloze.registry import register
from cloze.untrusted import parse_json

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_ROUNDED = 1e-2  # maximum distance of the sum of probabilities from 1


@register("answer", "scores")
class ScoresAnswer(CellAnswer):
    """A JSON object with the probability of each class, `{"class": 0.9, …}`, which `cloze predict --scores` writes.

    The first row names the classes. The name of a class instead of an object means probability 1, so that a dev set may have
    plain labels.
    """

    columns: Mapping[str, Any] = {"label": np.float32}
    ragged: ClassVar[bool] = True
    gives: frozenset[str] = frozenset({"numbers/label"})

    def parse(self, cell: str) -> dict[str, float] | str:
        """A cell as the probability of each class, or as the name of one."""
        return scores_of(cell)

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _ScoresEncoder:
        """The encoder of records."""
        return _ScoresEncoder(tokenizer, None if classes is None else Labels(classes))

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, classes)."""
        return {"numbers/label": stored["label"]}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, the mean probability of each, and the class with the highest."""
        shares = np.asarray(stored["label"], np.float64).reshape(-1, len(classes)).mean(0)
        return {
            "labels": list(classes), "constant_answer": classes[int(shares.argmax())],
            "label_shares": {label: round(float(share), 6) for label, share in zip(classes, shares, strict=True)},
        }


class _ScoresEncoder(RecordEncoder):
    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]:
        values = [self._row(record, path) for record in records]
        counts = np.array([len(row) for row in values], np.int64)
        return {"label": np.concatenate(values).astype(np.float32)}, counts

    def _row(self, record: Record, path: str) -> NDArray[np.float64]:
        where, answer = f"{path}:{record.line}", record.answer
        if self.labels is None:  # the first row names the classes
            if isinstance(answer, str):
                raise TaskError(f"{where}: the label {answer!r}; expected the first row to hold a probability for each class.")
            self.labels = Labels(label_names(list(answer)))
        names = self.labels.numbers
        if isinstance(answer, str):
            if answer not in names:
                raise TaskError(f"{where}: the label {answer!r} is none of the classes. {propose(answer, names)}")
            return np.array([float(name == answer) for name in names])
        if answer.keys() != names.keys():
            raise TaskError(f"{where}: probabilities of {', '.join(answer)}; expected those of {', '.join(names)}.")
        row = np.array([answer[name] for name in names])
        return row / row.sum()


def scores_of(cell: str) -> dict[str, float] | str:
    """A cell as the probability of each class, or as the name of one; any other cell is a `ValueError` with the reason."""
    probabilities: Any = None
    if cell.strip().startswith("{"):
        try:
            probabilities = parse_json(cell)
        except json.JSONDecodeError:
            raise ValueError(f'{cell[:60]!r}; expected a JSON object such as {{"yes": 0.9, "no": 0.1}}.') from None
    if probabilities is None:
        if not cell.strip():
            raise ValueError("empty; expected the probability of each class, or the name of one.")
        return cell.strip()
    numbers = list(probabilities.values())
    legal = all(
        isinstance(share, (int, float)) and not isinstance(share, bool) and 0 <= share <= 1 + _ROUNDED for share in numbers
    )
    if len(numbers) < 2 or not legal:
        raise ValueError(f"{cell[:60]!r}; expected a probability for each of two classes or more.")
    if abs(sum(numbers) - 1) > _ROUNDED:
        raise ValueError(f"{cell[:60]!r}; its probabilities are {sum(numbers):g} in all, expected 1.")
    return {str(name): float(value) for name, value in probabilities.items()}
