"""Rows and texts that other packages hold in memory, one by one: data frames, data sets, their columns, arrays.

None of these packages is imported: what counts is the methods that an object has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from cloze.errors import TaskError


def each_item(collection: Any) -> Iterator[Any]:
    """The rows of a table as dictionaries by column; else the items of a collection. Arrays become lists.

    A column of numbers that `datasets` declares as classes gives their names. Two columns with one name, several sets of rows,
    and what has no items are a `TaskError`.
    """
    require_text(collection)
    _require_different_columns(collection)
    if hasattr(collection, "iterrows"):  # a frame of pandas
        yield from collection.to_dict("records")
    elif hasattr(collection, "iter_rows"):  # of polars
        yield from collection.iter_rows(named=True)
    elif hasattr(collection, "to_pylist"):  # a table or an array of pyarrow
        yield from collection.to_pylist()
    elif isinstance(collection, Mapping):
        yield from _rows_of_columns(collection)
    elif not isinstance(collection, Iterable) and not hasattr(collection, "__getitem__"):
        raise TaskError(f"expected a list of texts or rows, got {type(collection).__name__}.")
    else:
        features = getattr(collection, "features", None)  # of a data set; of one column it is no mapping
        classes = {
            name: feature.names for name, feature in (features.items() if isinstance(features, Mapping) else ())
            if getattr(feature, "names", None)
        }
        for item in collection:
            if classes and isinstance(item, Mapping):
                yield {name: _named(value, classes.get(name)) for name, value in item.items()}
            else:
                yield item.tolist() if hasattr(item, "tolist") else item  # of numpy, torch and pandas


def _require_different_columns(table: Any) -> None:
    """A `TaskError` if two columns of a data frame have one name: a row as a dictionary would have lost one of them."""
    names = list(table.columns) if hasattr(table, "iterrows") else getattr(table, "column_names", None)
    names = names if isinstance(names, list) else []  # of several data sets it is a mapping
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise TaskError(f"two columns are named {twice!r}; expected different names. Rename or drop one of them.")


def _rows_of_columns(table: Mapping[Any, Any]) -> Iterator[dict[Any, Any]]:
    """The rows of columns of equal length, such as a slice of a data set."""
    columns = {name: list(each_item(values)) for name, values in table.items() if _is_column(values)}
    if len(columns) < len(table) or len(set(map(len, columns.values()))) != 1:
        raise TaskError(f"expected rows, got several sets of them ({', '.join(map(str, table))}). Choose one of them.")
    yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))


def _is_column(values: Any) -> bool:
    return not isinstance(values, (str, bytes, Mapping)) and not hasattr(values, "column_names") and isinstance(values, Iterable)


def _named(value: Any, names: Sequence[str] | None) -> Any:
    return names[value] if names is not None and isinstance(value, int) and 0 <= value < len(names) else value


def each_text(collection: Any, column: str = "text") -> Iterator[str]:
    """Texts one by one: strings, or the column `column` of rows, or their only one. Raises a `TaskError` for anything
    else, also for one string, whose letters nobody means."""
    if isinstance(collection, str):
        raise TaskError(f"expected a list of texts, got one: {collection[:40]!r}. Put it into a list.")
    for number, item in enumerate(each_item(collection), start=1):
        text = item
        if isinstance(item, Mapping):
            name = column if column in item or len(item) != 1 else next(iter(item))
            if name not in item:
                raise TaskError(f"text {number}: no column {column!r}; it has: {', '.join(map(str, item))}. Give one column.")
            text = item[name]
        require_text(text, f"text {number}: ")
        if not isinstance(text, str):
            raise TaskError(f"text {number}: expected a string, got {type(text).__name__}.")
        yield text


def require_text(value: Any, lead: str = "") -> None:
    """A `TaskError` for bytes, whose encoding only the caller knows."""
    if isinstance(value, (bytes, bytearray)):
        raise TaskError(f"{lead}{type(value).__name__}, expected text: decode it first, such as TEXT.decode('utf-8').")


def _is_missing(value: Any) -> bool:
    """Whether a value is NaN or a missing value of pandas."""
    pandas = sys.modules.get("pandas")  # without it, nothing has made such a value
    return isinstance(value, float) and value != value or (pandas is not None and (value is pandas.NA or value is pandas.NaT))


def plain(value: Any) -> Any:
    """A value as JSON represents it: NaN and the missing values of pandas become None, dates and times their ISO 8601, decimal
    and other numbers floats."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if _is_missing(value):
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (Decimal, Fraction)):
        return float(value)
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return {str(key): plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
