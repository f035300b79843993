"""Answers in a single cell of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloze.corpus.readers.labelled import read_rows
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Answer, Columns, Record
from cloze.errors import Parameter, TaskError

#: The parameters that choose the columns.
_PARAMETERS = tuple(Parameter(f"corpus.{name}", "NAME") for name in ("text", "text_b", "label"))


def wanted_columns(columns: Columns) -> dict[str, Parameter]:
    """The columns of texts and answer, each with the parameter that chooses it."""
    return dict(zip((*columns.texts, columns.label), (*_PARAMETERS[: len(columns.texts)], _PARAMETERS[-1]), strict=True))


def table_rows(
    path: Path | str, columns: Columns, fault: Fault | None, selected: dict[str, Parameter] | None = None, *, lists: bool = False
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The cells of texts and answer, or of the `selected` columns, row by row with their line; see `read_rows`."""
    selected = wanted_columns(columns) if selected is None else selected
    return read_rows(
        path, selected, format=columns.format, columns=columns.names, quoting=columns.quoting, fault=fault, lists=lists
    )


def has_column(path: Path | str, columns: Columns, name: str) -> bool:
    """Whether a table has the column `name`; False for what is no table."""
    try:
        next(table_rows(path, columns, None, {name: _PARAMETERS[0]}), None)
    except TaskError:
        return False
    return True


class CellAnswer(Answer):
    """An answer that is parsed from one cell."""

    @abstractmethod
    def parse(self, cell: str) -> Any:
        """The answer in a cell; a `ValueError` with the reason if it is invalid."""

    def also_has(self, path: Path | str, columns: Columns, name: str) -> bool:
        return has_column(path, columns, name)

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The rows of a table; a row whose cell cannot be parsed cannot be used."""
        for line, (*texts, cell) in table_rows(path, columns, fault):
            try:
                yield Record(line, tuple(texts), self.parse(cell))
            except ValueError as error:
                unusable(path, line, f"{columns.label!r} is {error}", fault=fault)
