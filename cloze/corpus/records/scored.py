"""Scored classes: any number of classes per record, each with how right it is, such as the answers to a question of VQA."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.records.answer import Labels, Record, RecordEncoder
from cloze.corpus.records.table import CellAnswer
from cloze.corpus.records.windows import TextParts
from cloze.registry import register
from cloze.untrusted import parse_json

Scores = Mapping[str, float]


class _ScoredEncoder(RecordEncoder):
    labels: Labels

    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]:
        codes = [self.labels.code(name) for record in records for name in record.answer]
        scores = [score for record in records for score in record.answer.values()]
        counts = np.array([len(record.answer) for record in records], np.int64)
        return {"label": np.array(codes, np.int32), "score": np.array(scores, np.float32)}, counts


@register("answer", "scored_classes")
class ScoredClassesAnswer(CellAnswer):
    """A JSON object with a score from 0 to 1 for each class that is right to some degree, `{"net": 1, "fence": 0.3}`; all others
    score 0, and so may all (VQA; Goyal et al., 2017; airsplay/lxmert, `src/tasks/vqa_data.py`).

    The name of a class instead of an object means score 1. Classes that do not occur in the training text count for nothing,
    because no answer can be one of them.
    """

    columns: Mapping[str, Any] = {"label": np.int32, "score": np.float32}
    coded: ClassVar[str | None] = "label"
    encodes = _ScoredEncoder
    ragged: ClassVar[bool] = True
    gives: frozenset[str] = frozenset({"numbers/label"})

    def parse(self, cell: str) -> Scores:
        """A cell as the score of each class."""
        return scores_in(cell)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, classes): the score of each class."""
        codes, row_scores = stored["label"], stored["score"]
        scores = np.zeros((len(codes), class_count), np.float32)
        row, slot = np.nonzero(codes >= 0)
        scores[row, codes[row, slot]] = row_scores[row, slot]
        return {"numbers/label": scores}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, the sum of the scores of each, and the class with the highest."""
        sums = np.bincount(stored["label"], weights=stored["score"], minlength=len(classes))
        return {
            "labels": list(classes), "constant_answer": classes[int(sums.argmax())],
            "label_counts": {label: round(float(score), 6) for label, score in zip(classes, sums, strict=True)},
        }


def scores_in(cell: str) -> Scores:
    """A cell as the score of each class that it names; any other cell is a `ValueError` with the reason."""
    if not cell.strip().startswith("{"):
        if not cell.strip():
            raise ValueError('empty; expected a JSON object such as {"net": 1, "fence": 0.3}, or {} if no answer is right.')
        return {cell.strip(): 1.0}
    try:
        scores = parse_json(cell)
    except json.JSONDecodeError:
        raise ValueError(f'{cell[:60]!r}; expected a JSON object such as {{"net": 1, "fence": 0.3}}.') from None
    for name, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 1:
            raise ValueError(f"{cell[:60]!r}; the score of {name!r} is {score!r}, expected a number from 0 to 1.")
    return {str(name).strip(): float(score) for name, score in scores.items()}
