"""What edits with a look-up table share: the check of its name, the table when they run, and fields of items found in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError, require_table
from cloze.exercises.units.unit_request import slots
from cloze.rows import rows_and_columns

Int64 = NDArray[np.int64]


def check_table(edit: str, table: str, tables: Mapping[str, Any] | None) -> None:
    """A `RecipeError` if a recipe has tables, and none of this name."""
    if tables is not None:
        require_table(edit, table, tables)


def table_of(edit: str, table: str, tables: Mapping[str, Any] | None) -> Any:
    """The table that an edit runs with. A `RecipeError` if it was built without."""
    if tables is None:
        raise RecipeError(f"{edit} needs the table {table!r} to run; give it tables={{{table!r}: …}}.")
    return tables[table]


def items_of(row: Int64, number: NDArray[Any], rows: int) -> tuple[NDArray[np.int32], Int64]:
    """Items by their ascending row (N,) and number (N,) as a field (B, R), 0 for none; and the place of each in its row, (N,)."""
    counts = np.bincount(row, minlength=rows)
    slot = slots(counts)
    items = np.zeros((rows, max(int(counts.max(initial=0)), 1)), np.int32)
    items[row, slot] = number
    return items, slot


def links_of(row: Int64, column: Int64, item: Int64, rows: int) -> NDArray[np.int32]:
    """Pairs of a column (N,) and the place of an item (N,), by their ascending row (N,), as a field (B, E, 2), -1 for none."""
    counts = np.bincount(row, minlength=rows)
    links = np.full((rows, max(int(counts.max(initial=0)), 1), 2), -1, np.int32)
    links[row, slots(counts)] = np.stack([column, item], axis=1)
    return links


def ends_of_items(links: NDArray[Any], items: int, width: int) -> tuple[Int64, Int64]:
    """The first and the last column of each item of rows of `width` columns, (B, `items`) each, from links (B, E, 2); of an item
    without links `width` and -1."""
    row, slot = rows_and_columns(links[:, :, 0] >= 0)
    token, item = links[row, slot].T
    first, last = np.full((len(links), items), width, np.int64), np.full((len(links), items), -1, np.int64)
    np.minimum.at(first, (row, item), token)
    np.maximum.at(last, (row, item), token)
    return first, last
