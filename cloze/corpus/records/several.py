"""Any number of classes per record, or none: topics, the senses of a word."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from token import STRING
from tokenize import TokenError, generate_tokens
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import OPTION, ListCell, names_of
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Columns, Labels, Record, RecordEncoder
from cloze.corpus.records.audits import Audit, OddClasses, Unseparated
from cloze.corpus.records.table import CellAnswer, table_rows, wanted_columns
from cloze.corpus.records.windows import TextParts
from cloze.errors import Parameter, RecipeError, TaskError
from cloze.registry import register
from cloze.untrusted import parse_json

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

_BITS = frozenset({"0", "1"})
_LOOKED = 100  # rows


class _ClassesEncoder(RecordEncoder):
    labels: Labels

    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]:
        codes: list[int] = []
        for record in records:
            codes += [self.labels.known_code(label, f"{path}:{record.line}") for label in record.answer]
        counts = np.array([len(record.answer) for record in records], np.int64)
        return {"label": np.array(codes, np.int32)}, counts


@register("answer", "classes")
class ClassesAnswer(CellAnswer):
    """Any number of classes for each record, in one cell: a list as JSON or Python writes it, or names with `separator` between
    them.

    An empty cell means no class. `names` are those of the classes where the file has numbers in place of them: a list of 0 and 1
    in each cell, or a column of 0 and 1 for each class.
    """

    columns: Mapping[str, Any] = {"label": np.int32}
    coded: ClassVar[str | None] = "label"
    encodes = _ClassesEncoder
    ragged: ClassVar[bool] = True
    gives: frozenset[str] = frozenset({"numbers/label"})

    def __init__(self, *, separator: str = ",", names: list[str] | None = None) -> None:
        if not separator.strip(" "):
            raise RecipeError("classes.separator: expected a character that is in no name, such as ';' or '|'.")
        self.separator, self.names = separator, tuple(names or ())

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table, with the classes in one cell or in a column for each."""
        header = () if str(path) == "-" else names_of(path, format=columns.format, columns=columns.names, quoting=columns.quoting)
        by_column = columns.label not in header and self.names and set(self.names) <= set(header)
        if not by_column:
            if header and columns.label not in header:
                refuse_columns(str(path), header, columns.texts, self._bits(path, columns, header))
            yield from super().read(path, columns, fault)
            return
        options = {name: option for name, option in wanted_columns(columns).items() if name in columns.texts}
        options |= dict.fromkeys(self.names, Parameter("corpus.answer.names", ("A", "B")))
        for line, cells in table_rows(path, columns, fault, options):
            try:
                yield Record(line, cells[: len(columns.texts)], chosen(cells[len(columns.texts) :], self.names))
            except ValueError as error:
                unusable(path, line, str(error), fault=fault)

    def _bits(self, path: Path | str, columns: Columns, names: Sequence[str]) -> list[str]:
        """The columns of 0 and 1, by the first rows."""
        candidates = [name for name in names if name not in columns.texts]
        numbered_rows = table_rows(path, columns, lambda line, why: None, dict.fromkeys(candidates, OPTION))
        rows = [cells for _, cells in islice(numbered_rows, _LOOKED)]
        return [name for name, cells in zip(candidates, zip(*rows, strict=True), strict=False) if set(cells) <= _BITS]

    def audits(self, tokenizer: Tokenizer | None) -> list[Audit]:
        """Also what notices another separator and odd names of classes."""
        return [*super().audits(tokenizer), Unseparated(), OddClasses(lambda record: record.answer)]

    def parse(self, cell: str) -> list[str]:
        """A cell as classes; one with a class twice or with an empty name cannot be used."""
        return classes_of(cell, self.separator, self.names)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`numbers/label` (B, classes): 1 for each class of the record, else 0."""
        return {"numbers/label": hot(stored["label"], class_count)}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The share of the records with each class, smoothed by half a record with and half a record without it, and how many
        have it, for objectives that need them."""
        counts, records = np.bincount(stored["label"], minlength=len(classes)), len(stored["bounds"]) - 1
        return {"shares": [float(share) for share in (counts + 0.5) / (records + 1)], "label_counts": counts.tolist()}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The classes, how often each occurs, and the most frequent combination as a JSON list."""
        codes, bounds = np.asarray(stored["label"]), np.asarray(stored["bounds"])
        together = Counter(
            tuple(sorted(codes[begin:end].tolist())) for begin, end in zip(bounds, bounds[1:], strict=False)
        )
        most_frequent = min(together, key=lambda combination: (-together[combination], combination))
        counts = np.bincount(codes, minlength=len(classes))
        return {
            "labels": list(classes), "constant_answer": json.dumps([classes[code] for code in most_frequent], ensure_ascii=False),
            "label_counts": {label: int(count) for label, count in zip(classes, counts, strict=True)},
        }


def classes_of(cell: str, separator: str, classes: Sequence[str] = ()) -> list[str]:
    """The classes in a cell; a cell without a list of classes is a `ValueError` with the reason.

    With `classes`, a list of as many 0 and 1 chooses among them.
    """
    listed = _listed(cell)
    members = listed or ([name.strip() for name in cell.split(separator)] if listed is None and cell.strip() else [])
    if classes and len(members) == len(classes) and set(members) <= _BITS:
        return chosen(members, classes)
    if "" in members:
        raise ValueError(f"{cell[:60]!r}; expected names with {separator!r} between them, and found an empty one.")
    twice = [name for name, count in Counter(members).items() if count > 1]
    if len(members) > 1 and set(members) <= _BITS and (twice or listed is not None):
        raise ValueError(
            f"{cell[:60]!r}, a list of {len(members)} zeros and ones. Name the class of each place: "
            "--set 'corpus.answer.names=[A,B,…]'"
        )
    if twice:
        raise ValueError(f"{cell[:60]!r}; it names {twice[0]!r} twice. Name each class once.")
    return members


def chosen(bits: Sequence[str], classes: Sequence[str]) -> list[str]:
    """The classes whose cell is 1, not 0; any other cell is a `ValueError` with the reason."""
    for bit, name in zip(bits, classes, strict=True):
        if bit.strip() not in _BITS:
            raise ValueError(f"{name!r} is {bit[:40]!r}; expected 0 or 1.")
    return [name for bit, name in zip(bits, classes, strict=True) if bit.strip() == "1"]


def refuse_columns(path: str, names: Sequence[str], texts: Sequence[str], bits: Sequence[str]) -> None:
    """Raise a `TaskError` for a file without a column of classes that has columns of 0 and 1, and name the way out."""
    if bits and set(texts) <= set(names):
        raise TaskError(
            f"{path}: no column with classes; it has a column of 0 and 1 for each of {', '.join(bits)}.\n"
            "  Name the classes: ", Parameter("corpus.answer.names", tuple(bits), quoted=True),
        )


def _listed(cell: str) -> list[str] | None:
    """The names in a list of texts or numbers, as JSON or Python writes it; None for a cell that is no list."""
    if isinstance(cell, ListCell):
        members: Any = [None if item is None else str(item) for item in cell.items]
    elif cell.strip().startswith("[") and cell.strip().endswith("]"):
        try:
            members = parse_json(cell)
        except json.JSONDecodeError:
            members = _python_list(cell)
    else:
        return None
    if not isinstance(members, list) or any(isinstance(m, (list, dict, bool)) or m is None or m != m for m in members):
        raise ValueError(f"{cell[:60]!r}; expected a JSON list of names.")
    return [str(member).strip() for member in members]


def _python_list(cell: str) -> list[Any] | None:
    """A list of texts and numbers as Python writes it; None for any other cell. Texts without a comma between them, as numpy
    writes arrays, are no list, although Python would join them."""
    try:
        tree = ast.parse(cell.strip(), mode="eval").body
        value = ast.literal_eval(tree)
        strings = [token for token in generate_tokens(StringIO(cell.strip()).readline) if token.type == STRING]
    except (ValueError, SyntaxError, TokenError, RecursionError, MemoryError):
        return None
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    return value if isinstance(value, list) and len(texts) == len(strings) else None


def hot(codes: NDArray[Any], classes: int) -> NDArray[np.float32]:
    """Codes (B, K), -1 for none, as (B, classes) of 0 and 1."""
    indicators = np.zeros((len(codes), classes), np.float32)
    row, slot = np.nonzero(codes >= 0)
    indicators[row, codes[row, slot]] = 1.0
    return indicators
