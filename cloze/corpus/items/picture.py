"""A picture with its items, and what the files of others call the arrays of items."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.item_store import BOXES, CLASS, FEATURES, SCORE

PROBABILITIES = "probabilities"
#: What the files of others call our arrays.
OTHER_NAMES = {
    "x": FEATURES, "bbox": BOXES, "norm_bb": BOXES, "objects_id": CLASS, "classes": CLASS, "conf": SCORE, "scores": SCORE,
    "objects_conf": SCORE, "attrs_id": "attribute", "attrs_conf": "attribute_score", "image_features": FEATURES,
    "image_bb": BOXES, "objects": CLASS, "obj_id": CLASS, "obj_conf": SCORE, "attr_id": "attribute",
    "attr_conf": "attribute_score", "cls_prob": PROBABILITIES, "soft_labels": PROBABILITIES,
}
#: The types of arrays that are written in base64.
TYPES = {
    "objects_id": np.int64, "objects_conf": np.float32, "attrs_id": np.int64, "attrs_conf": np.float32, "boxes": np.float32,
    "features": np.float32, "cls_prob": np.float32,
}
#: What the width and the height of a picture are called.
WIDTHS, HEIGHTS = ("img_w", "image_w", "image_width", "width"), ("img_h", "image_h", "image_height", "height")


class Picture(NamedTuple):
    """The items of one picture: its key, arrays of (R,) or (R, width), and its width and height in pixels where the file knows
    them."""

    key: str
    arrays: Mapping[str, NDArray[Any]]
    size: tuple[float, float] | None = None


class ItemFile(NamedTuple):
    """A file of items: its pictures in order, the names of classes by array, and what made its features, where the file says."""

    pictures: Iterator[Picture]
    names: Mapping[str, tuple[str, ...]]
    extractor: str | None = None


def picture_of(key: str, record: Mapping[str, Any]) -> Picture:
    """The picture of a record of values by name: arrays of numbers, and texts in base64 with `num_boxes` rows. What is neither,
    and arrays of other dimensions, are left out. A `ValueError` for a text that is no array."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, value in record.items():
        if name in TYPES and isinstance(value, (str, bytes)):
            array = decoded(value, int(record["num_boxes"]), TYPES[name])
        elif isinstance(value, (np.ndarray, list)):
            array = np.asarray(value)
        else:
            continue
        if array.ndim in (1, 2) and array.dtype.kind in "fiub":
            arrays[OTHER_NAMES.get(name, name)] = array
    if not arrays:
        raise ValueError(f"no arrays of items, only {', '.join(map(str, record)) or 'nothing'}")
    width, height = (next((record[name] for name in names if name in record), None) for names in (WIDTHS, HEIGHTS))
    size = None if width is None or height is None else (float(width), float(height))
    return Picture(key, arrays, size)


def decoded(cell: str | bytes, number: int, kind: Any) -> NDArray[Any]:
    """An array of `number` rows in base64; a `ValueError` if it is none."""
    values: NDArray[Any] = np.frombuffer(base64.b64decode(cell, validate=True), kind)
    if number and len(values) % number:
        raise ValueError(f"{len(values)} numbers for {number} boxes")
    return values if len(values) == number and np.dtype(kind).kind == "i" else values.reshape(number, -1)
