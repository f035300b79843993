"""The items of a store of records: ragged arrays, memory-mapped.

    items/pictures.bin          int64, the number of each record's picture, -1 for none
    items/second_pictures.bin   int64, the number of each record's second picture, if records are about two
    items/pictures.txt          the key of each picture, a line each: what captions call it
    items/<set>/spans.bin       int64, the first item of each picture in the arrays of the set and the one after the last
    items/<set>/<array>.bin     one row of fixed width for each item
    items/<set>/<array>.names   the names of the classes of an array of whole numbers, a line each; optional

The header's `items` describes the arrays of every set. Records that show the same picture share its items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.pieces import WIDE, RowFile
from cloze.corpus.readers.pictured.clips import film_of
from cloze.corpus.stores.store import mapped
from cloze.errors import CorpusError, propose

Int64 = NDArray[np.int64]
FOLDER = "items/"
PICTURES, SECOND, KEYS = f"{FOLDER}pictures.bin", f"{FOLDER}second_pictures.bin", f"{FOLDER}pictures.txt"
FEATURES, BOXES, CLASS, SCORE = "features", "boxes", "class", "score"
TIMES = "times"  # when an item that is recorded begins and ends, in seconds
#: What `mask_items` and rows about two pictures say of items; no array of a file.
MADE = frozenset({"masked", "picture"})
#: The types that arrays may have on disk.
TYPES = ("float16", "float32", "int32")


class ItemArray(NamedTuple):
    """An array of a set: its type on disk, and the numbers of each item; whole numbers have one."""

    dtype: str
    width: int

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers, such as classes."""
        return np.dtype(self.dtype).kind == "i"

    def field(self, items: str, name: str) -> str:
        """The field that it becomes."""
        if name == FEATURES:
            return f"item_vectors/{items}"
        return f"{'items' if self.whole else 'item_vectors'}/{items}/{name}"


def item_fields(items: str, arrays: Sequence[str]) -> frozenset[str]:
    """The fields that arrays of a set may become, with the number of the items. An array other than features is whole numbers
    or vectors, which the store knows."""
    both = {f"{field}/{items}/{name}" for name in arrays if name != FEATURES for field in ("items", "item_vectors")}
    return frozenset({f"item_length/{items}", f"item_vectors/{items}", *both})


@dataclass(frozen=True)
class ItemSet:
    """The items of all pictures of a store: `spans` (pictures, 2) into arrays of (items,) or (items, width). `pieces` read the
    files of wide arrays."""

    name: str
    spans: Int64
    arrays: Mapping[str, NDArray[Any]]
    kinds: Mapping[str, ItemArray]
    names: Mapping[str, tuple[str, ...]]
    pieces: Mapping[str, RowFile] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of items."""
        return len(next(iter(self.arrays.values())))

    @cached_property
    def classes(self) -> Mapping[str, int]:
        """For each array of whole numbers how many classes it has: the number of its names, else its largest number + 1."""
        integers = [name for name, kind in self.kinds.items() if kind.whole]
        return {
            name: len(self.names[name]) if name in self.names else int(self.arrays[name].max(initial=0)) + 1 for name in integers
        }

    def read(self, pictures: Int64, names: Sequence[str], most: int | None = None) -> dict[str, NDArray[Any]]:
        """The items of some pictures (B,), -1 for none, as fields: `item_length/<set>` (B,) and each array (B, R, …), padded
        with 0, classes with -1; of more than `most` items the first. Numbers keep their type, half of the memory for float16;
        boxes get the share of the picture that they cover as a fifth column."""
        start, stop = self.spans[pictures].T if len(self.spans) else np.zeros((2, len(pictures)), np.int64)
        count = np.where(pictures >= 0, stop - start, 0)
        count = count if most is None else np.minimum(count, most)
        columns = np.arange(int(count.max(initial=0)))
        inside = columns < count[:, None]
        index = (start[:, None] + columns)[inside]
        fields: dict[str, NDArray[Any]] = {f"item_length/{self.name}": count.astype(np.int32)}
        for name in names:
            kind = self.kinds[name]
            if name in self.pieces:
                fields[kind.field(self.name, name)] = self.pieces[name].read(start, count, len(columns))
                continue
            shape = (len(pictures), len(columns))
            values = self.arrays[name].take(index, axis=0)
            if len(index) == inside.size:  # nothing is padding
                array = values.reshape(*shape, *values.shape[1:])
            else:
                array = np.full((*shape, *values.shape[1:]), -1 if kind.whole else 0, values.dtype)
                array[inside] = values
            fields[kind.field(self.name, name)] = with_area(array) if name == BOXES else array
        return fields


def with_area(boxes: NDArray[Any]) -> NDArray[np.float32]:
    """Boxes (B, R, 4) with the share of the picture that they cover (B, R, 5)."""
    extended_boxes = np.empty((*boxes.shape[:2], 5), np.float32)
    extended_boxes[..., :4] = boxes[..., :4]
    extended_boxes[..., 4] = (extended_boxes[..., 2] - extended_boxes[..., 0]) * (extended_boxes[..., 3] - extended_boxes[..., 1])
    return extended_boxes


class StoredItems:
    """The items of a store: its pictures, and the sets of items that they have. `second` are the second pictures of records that
    are about two, else None."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self.pictures: Int64 = mapped(folder / PICTURES, np.dtype(np.int64))
        self.second: Int64 | None = mapped(folder / SECOND, np.dtype(np.int64)) if (folder / SECOND).exists() else None
        self.sets: Mapping[str, ItemSet] = {name: _opened(folder, name, entry["arrays"]) for name, entry in about.items()}

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """What the captions call each picture."""
        return tuple((self.folder / KEYS).read_text(encoding="utf-8").split("\n")[:-1])

    @cached_property
    def groups(self) -> Int64:
        """What each picture belongs to (P,): clips of a film (`readers/pictured/clips.py`), and pictures whose keys have the same
        text before the last slash, such as `cooking/03` and `cooking/04`, have one number; every other picture has its own."""
        films = [(key, film_of(key)) for key in self.keys]
        parents = [f"#{film}" if film != key else key.rpartition("/")[0] or f"/{key}" for key, film in films]
        number = {parent: group for group, parent in enumerate(dict.fromkeys(parents))}
        return np.array([number[parent] for parent in parents], np.int64)

    def require(self, requirements: Mapping[str, Sequence[str]]) -> None:
        """Raise a `CorpusError` unless the store has these arrays of these sets."""
        for name, arrays in requirements.items():
            if name not in self.sets:
                raise CorpusError(
                    f"{self.folder}: this store has no items {name!r}. {propose(name, self.sets)}\n"
                    f"  Build it with them: cloze corpus build CAPTIONS.jsonl --items {name}=FILE --out STORE"
                )
            for array in arrays:
                if array not in self.sets[name].kinds:
                    raise CorpusError(
                        f"{self.folder}: its items {name!r} have no {array!r}, which the recipe reads; they have "
                        f"{', '.join(self.sets[name].kinds)}. {propose(array, self.sets[name].kinds)}\n"
                        f"  Put {array!r} into the file of the items and build the store again, or change corpus.items.{name}.\n"
                        "  Of regions, a classifier tells class, score and probabilities: cloze features PICTURES --model MODEL "
                        "--grid 4 --crops"
                    )

    def check(self, records: int) -> None:
        """Raise a `CorpusError` where files disagree with each other or point outside of an array."""
        def wrong(what: str) -> CorpusError:
            return CorpusError(f"{self.folder}: damaged; {what}.\n  Rebuild it: cloze corpus build CAPTIONS --items NAME=FILE")

        columns = {PICTURES: self.pictures} if self.second is None else {PICTURES: self.pictures, SECOND: self.second}
        for file, pictures in columns.items():
            if len(pictures) != records:
                raise wrong(f"{file} has {len(pictures):,} entries, expected {records:,}")
            for name, item_set in self.sets.items():
                if len(pictures) and not -1 <= int(pictures.min()) <= int(pictures.max()) < len(item_set.spans):
                    raise wrong(f"{file} names a picture that items/{name} does not have")
        for name, item_set in self.sets.items():
            sizes = {array: len(values) for array, values in item_set.arrays.items()}
            if len(set(sizes.values())) != 1:
                raise wrong(f"the arrays of items/{name} have different lengths: {sizes}")
            low, high = item_set.spans.reshape(-1, 2).T
            if len(low) and (int(low.min()) < 0 or int((high - low).min()) < 0 or int(high.max()) > item_set.size):
                raise wrong(f"items/{name}/spans.bin points outside of its arrays")


def _opened(folder: Path, name: str, about: Mapping[str, Any]) -> ItemSet:
    directory = folder / FOLDER / name
    kinds = {array: ItemArray(entry["dtype"], entry["width"]) for array, entry in about.items()}
    arrays: dict[str, NDArray[Any]] = {}
    for array, kind in kinds.items():
        flat = mapped(directory / f"{array}.bin", np.dtype(kind.dtype))
        arrays[array] = flat if kind.whole else flat.reshape(-1, kind.width)
    wide_kinds = {array: kind for array, kind in kinds.items() if np.dtype(kind.dtype).itemsize * kind.width >= WIDE}
    pieces = {array: RowFile(directory / f"{array}.bin", np.dtype(kind.dtype), kind.width) for array, kind in wide_kinds.items()}
    name_files = {array: (directory / f"{array}.names") for array, entry in about.items() if entry.get("names")}
    names = {array: tuple(path.read_text(encoding="utf-8").split("\n")[:-1]) for array, path in name_files.items()}
    return ItemSet(name, mapped(directory / "spans.bin", np.dtype(np.int64)).reshape(-1, 2), arrays, kinds, names, pieces)
