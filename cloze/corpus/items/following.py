"""Items of one thing behind those of another in the same rows: of a second picture, or of the next clip of a film."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.rows import columns_before

Arrays = dict[str, NDArray[Any]]
Int64 = NDArray[np.int64]


def followed(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]], name: str) -> Arrays:
    """The fields of the items of the set `name` in rows, `first` those of the one thing and then those of the other; padded with
    0, numbers of classes with -1. Both have the same fields, each as `ItemSet.read` gives them."""
    length = f"item_length/{name}"
    count, more = first[length].astype(np.int64), second[length].astype(np.int64)
    arrays: Arrays = {length: (count + more).astype(np.int32)}
    for field, value in first.items():
        if not _is_of(field, name):
            continue
        both = places(count, more, value.shape[1])
        real = columns_before(count + more, both.shape[1])
        table = np.concatenate([value, second[field]], axis=1)
        filler = -1 if table.dtype.kind == "i" else 0
        last = table.shape[1] - 1
        values = table[np.arange(len(table))[:, None], np.minimum(both, last)] if table.shape[1] else table
        arrays[field] = np.where(real.reshape(real.shape + (1,) * (table.ndim - 2)), values, table.dtype.type(filler))
    return arrays


def of_two_pictures(first: Mapping[str, NDArray[Any]], second: Mapping[str, NDArray[Any]], name: str) -> Arrays:
    """`followed`, with `items/<set>/picture`: 0 for the items of the first picture and 1 for those of the second."""
    return followed(_numbered(first, 0, name), _numbered(second, 1, name), name)


def _numbered(side: Mapping[str, NDArray[Any]], picture: int, name: str) -> Arrays:
    """The fields of a set with the number of the picture that its items are of."""
    count = len(side[f"item_length/{name}"])
    return {**side, f"items/{name}/picture": np.full((count, _width(side, name)), picture, np.int32)}


def _width(side: Mapping[str, NDArray[Any]], name: str) -> int:
    """For how many items the arrays of a set have room."""
    return next(value.shape[1] for field, value in side.items() if _is_of(field, name))


def _is_of(field: str, name: str) -> bool:
    """Whether a field holds something of each item of a set."""
    return "." not in field and fields.find(field).per == "item" and fields.split(field).set.partition("/")[0] == name


def places(count: Int64, more: Int64, width: int) -> Int64:
    """(B, L) the columns of `count` things, then those of `more` things that begin at the column `width`."""
    column = np.arange(int((count + more).max(initial=0)))
    return np.where(column < count[:, None], column, column - count[:, None] + width)
