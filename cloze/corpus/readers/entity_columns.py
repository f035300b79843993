"""The header of a file of entities, which every reader of such files takes in the same way."""

from __future__ import annotations

from collections.abc import Sequence

from cloze.errors import CorpusError, propose

COLUMNS = ("id", "label", "aliases", "type", "description", "count")
_OTHER_NAMES = {"name": "label", "types": "type"}


def header_of(cells: Sequence[str], place: str) -> tuple[str, ...] | None:
    """The columns that the first line of a table names; None if it is no header, which begins with a cell `id`.

    Raises `CorpusError`, which begins with `place`, if it names any other column.
    """
    if cells[0] != "id" or len(cells) < 2:
        return None
    columns = tuple(_OTHER_NAMES.get(cell, cell) for cell in cells)
    for column in columns:
        if column not in COLUMNS:
            raise CorpusError(f"{place}: unknown column {column!r}. {propose(column, COLUMNS)}")
    return columns
