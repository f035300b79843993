"""Any number of classes per record, or none: topics, the senses of a word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.records.answer import Block, Encoder, Labels, Record
from cloze.corpus.records.table import CellAnswer
from cloze.corpus.records.windows import Shown
from cloze.errors import RecipeError
from cloze.registry import register
from cloze.untrusted import parse_json

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


@register("answer", "classes")
class ClassesAnswer(CellAnswer):
    """Any number of classes for each record, in one cell: a JSON list, or names with `separator` between them.

    An empty cell means no class.
    """

    columns: ClassVar[Mapping[str, Any]] = {"label": np.int32}
    coded: ClassVar[str | None] = "label"
    ragged: ClassVar[bool] = True
    gives: ClassVar[frozenset[str]] = frozenset({"numbers/label"})

    def __init__(self, *, separator: str = ",") -> None:
        if not separator.strip(" "):
            raise RecipeError("classes.separator: expected a character that is in no name, such as ';' or '|'.")
        self.separator = separator

    def parse(self, cell: str) -> list[str]:
        """A cell as classes; one with a class twice or with an empty name cannot be used."""
        return classes_of(cell, self.separator)

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _ClassesEncoder:
        """The encoder of records."""
        return _ClassesEncoder(tokenizer, Labels(classes))

    def fields(self, stored: Mapping[str, NDArray[Any]], shown: Shown, classes: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, classes): 1 for each class of the record, else 0."""
        return {"numbers/label": hot(stored["label"], classes)}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The share of the records with each class, smoothed by half a record with and half a record without it, and how many
        have it, for objectives that need them."""
        counts, records = np.bincount(stored["label"]), len(stored["bounds"]) - 1
        return {"shares": [float(share) for share in (counts + 0.5) / (records + 1)], "label_counts": counts.tolist()}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, how often each occurs, and the most frequent combination as a JSON list."""
        codes, bounds = np.asarray(stored["label"]), np.asarray(stored["bounds"])
        together = Counter(
            tuple(sorted(codes[begin:end].tolist())) for begin, end in zip(bounds, bounds[1:], strict=False)
        )
        usual = min(together, key=lambda one: (-together[one], one))
        counts = np.bincount(codes, minlength=len(classes))
        return {
            "labels": list(classes), "usual": json.dumps([classes[code] for code in usual], ensure_ascii=False),
            "label_counts": {label: int(count) for label, count in zip(classes, counts, strict=True)},
        }


class _ClassesEncoder(Encoder):
    labels: Labels

    def __call__(self, records: Sequence[Record], path: str) -> Block:
        codes: list[int] = []
        for record in records:
            codes += [self.labels.known_code(label, f"{path}:{record.line}") for label in record.answer]
        counts = np.array([len(record.answer) for record in records], np.int64)
        return Block(*self.texts(records), {"label": np.array(codes, np.int32)}, counts)


def classes_of(cell: str, separator: str) -> list[str]:
    """The classes in a cell; a cell without a list of classes is a `ValueError` with the reason."""
    found = _json_list(cell)
    if found is None:
        found = [name.strip() for name in cell.split(separator)] if cell.strip() else []
    if "" in found:
        raise ValueError(f"{cell[:60]!r}; expected names with {separator!r} between them, and found an empty one.")
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice:
        raise ValueError(f"{cell[:60]!r}; it names {twice[0]!r} twice. Name each class once.")
    return found


def _json_list(cell: str) -> list[str] | None:
    """The names in a JSON list of texts or numbers; None for any other cell."""
    if not cell.strip().startswith("["):
        return None
    try:
        found = parse_json(cell)
    except json.JSONDecodeError:
        return None
    if not isinstance(found, list) or any(isinstance(one, (list, dict, bool)) or one is None for one in found):
        raise ValueError(f"{cell[:60]!r}; expected a JSON list of names.")
    return [str(one).strip() for one in found]


def hot(codes: NDArray[Any], classes: int) -> NDArray[np.float32]:
    """Codes (B, K), -1 for none, as (B, classes) of 0 and 1."""
    made = np.zeros((len(codes), classes), np.float32)
    row, place = np.nonzero(codes >= 0)
    made[row, codes[row, place]] = 1.0
    return made
