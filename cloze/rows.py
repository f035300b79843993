"""A block of rows, which sources make and edits change: padded arrays with lengths. Immutable; no torch."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.errors import RecipeError

Array = NDArray[Any]

_COLUMNS = ("positions", "item_positions", "links", "centers", "contexts")  # -1 for none


class Inserted(NamedTuple):
    """Where tokens are put into rows of L' columns, as flat positions row · L' + column, and their ids, which may broadcast."""

    at: Array
    ids: Array


class Rows(Mapping[str, Array]):
    """An immutable mapping from full field names to arrays whose first axis is the row.

    Token-aligned fields are (B, L) and padded: what lies at or beyond `length` is meaningless. Targets of tokens are
    padded too: `targets/<set>` and `positions/<set>` are (B, K), and a position of -1 means "no target here". A target of the
    whole row, `targets/<set>` of shape (B,), has no position. Views and companions are
    prefixes: `hole.tokens`, `distractor.length`. A single row is a block of one.
    """

    def __init__(self, arrays: Mapping[str, Array], *, checked: bool = False) -> None:
        self._arrays = dict(arrays)
        if not checked:
            self._check()

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def items(self) -> ItemsView[str, Array]:
        """Names and arrays."""
        return self._arrays.items()

    @property
    def count(self) -> int:
        """How many rows the block has."""
        return len(next(iter(self._arrays.values())))

    @property
    def width(self) -> int:
        """The columns of the main view: those of its token-aligned fields, whichever it has; 0 if it has none."""
        return _width(self._arrays, "main")

    def having(self, **arrays: Array) -> Rows:
        """A new block with these fields added or replaced; names with `/` or `.` go through `having_all`."""
        return self.having_all(arrays)

    def having_all(self, arrays: Mapping[str, Array]) -> Rows:
        """A new block with these fields added or replaced."""
        return Rows({**self._arrays, **arrays}, checked=True)

    def without(self, *names: str) -> Rows:
        """A new block without these fields."""
        return Rows({k: v for k, v in self._arrays.items() if k not in names}, checked=True)

    def view(self, name: str) -> Rows:
        """The fields of one view or companion, without its prefix; `main` is everything that has none."""
        if name == "main":
            return Rows({k: v for k, v in self._arrays.items() if "." not in k}, checked=True)
        start = name + "."
        return Rows({k[len(start):]: v for k, v in self._arrays.items() if k.startswith(start)}, checked=True)

    def with_view(self, name: str, rows: Rows) -> Rows:
        """A new block in which the view `name` consists of the fields of `rows` exactly."""
        if name == "main":
            arrays = {k: v for k, v in self._arrays.items() if "." in k}
            return Rows({**rows._arrays, **arrays}, checked=True)
        start = name + "."
        arrays = {k: v for k, v in self._arrays.items() if not k.startswith(start)}
        return Rows({**arrays, **{start + k: v for k, v in rows._arrays.items()}}, checked=True)

    def take(self, index: Any) -> Rows:
        """Some of the rows: a slice, a boolean mask or an index array."""
        return Rows({k: v[index] for k, v in self._arrays.items()}, checked=True)

    def splice(self, index: Array, length: Array, inserted: Inserted | None = None) -> Rows:
        """Move every token-aligned field of this view at once.

        `index` (B, L') is the source column of every new position; its values at inserted positions and in padding may be any
        integers. `inserted` lists the positions where a token is inserted, and its id.
        `positions/<set>` follow the tokens they name; a target whose token is gone gets position -1.
        """
        width = self.width
        flat = index + (np.arange(len(index), dtype=np.intp) * width)[:, None]
        return self._moved(
            lambda value: value.reshape((-1, *value.shape[2:])).take(flat, axis=0, mode="clip"),
            lambda: index, length, inserted,
        )

    def splice_stretches(
        self, width: int, shifts: Sequence[Array], masks: Sequence[Array], length: Array, inserted: Inserted
    ) -> Rows:
        """Like `splice`, faster, for rows of `width` columns made of a few long stretches, which are copied whole.

        Column c is copied from column c + shift; the shift is `shifts[0]` (B,), and `shifts[k]` where `masks[k - 1]` (B,
        width) is true. A shift may lead at most `width` columns out of the row.
        """
        old = self.width
        starts = [shift + width + np.arange(len(shift)) * old for shift in shifts]

        def copied(value: Array) -> Array:
            edge = np.zeros((width, *value.shape[2:]), value.dtype)
            flat = np.concatenate([edge, value.reshape((-1, *value.shape[2:])), edge])
            windows: Array = np.ndarray(
                (len(flat) - width + 1, width, *value.shape[2:]), value.dtype, flat, strides=(flat.strides[0], *flat.strides)
            )
            new = windows[starts[0]]
            for start, after in zip(starts[1:], masks, strict=True):
                np.copyto(new, windows[start], where=after.reshape(after.shape + (1,) * (new.ndim - 2)))
            return new

        def index() -> Array:
            columns = np.arange(width) + shifts[0][:, None]
            for shift, before, after in zip(shifts[1:], shifts, masks, strict=False):
                columns += after * (shift - before)[:, None]
            return columns

        return self._moved(copied, index, length, inserted)

    def _moved(
        self, move: Callable[[Array], Array], index: Callable[[], Array], length: Array, inserted: Inserted | None
    ) -> Rows:
        """Every token-aligned field after `move`, and positions after the same moves of the columns, `index`."""
        old = self.width
        moved: dict[str, Array] = {}
        for name, value in self._arrays.items():
            field = fields.find(name)
            if field.per == "pair" and "." not in name:
                raise RecipeError("no edit can move tokens once inject has said which of them see each other: put it last.")
            if field.aligned and "." not in name:
                new = moved[name] = move(value)
                if inserted is not None:
                    new.reshape((-1, *new.shape[2:]))[inserted.at] = inserted.ids if name == "tokens" else field.inserted
            elif field.name == "positions" and "." not in name and value.ndim > 1:
                moved[name] = _follow(value, index(), length, inserted, old)
            else:
                moved[name] = value
        moved["length"] = length
        return Rows(moved, checked=True)

    @staticmethod
    def concatenate(blocks: Sequence[Rows]) -> Rows:
        """Concatenate blocks of the same fields; narrower ones are padded (positions with -1, "no target")."""
        if len(blocks) == 1:
            return blocks[0]
        joined = {}
        for name in blocks[0]:
            values = [block[name] for block in blocks]
            if values[0].ndim > 1:
                field = fields.find(name)
                width = max(value.shape[1] for value in values)
                empty = -1 if field.name in _COLUMNS else 0
                square = field.per == "pair"
                values = [
                    np.pad(
                        v, [(0, 0), *[(0, width - v.shape[1])] * (1 + square), *[(0, 0)] * (v.ndim - 2 - square)],
                        constant_values=empty,
                    )
                    for v in values
                ]
            joined[name] = np.concatenate(values)
        return Rows(joined, checked=True)

    @staticmethod
    def concatenate_mixed(blocks: Sequence[Rows]) -> Rows:
        """Concatenate blocks that do not have the same fields: a row has only the targets of its own block.

        Targets that a block lacks have position -1 in its rows; token-aligned fields are 0 there and weights 1.
        """
        names = list(dict.fromkeys(name for block in blocks for name in block))
        loose = {
            name for block in blocks for name, value in block.items()
            if (fields.find(name).name, value.ndim) in (("targets", 1), ("values", 1), ("values", 2))
        }
        names += [placed for placed in map(_place_of, loose) if placed not in names]
        return Rows.concatenate([
            Rows({name: block[name] if name in block else _absent(block, name, blocks) for name in names}, checked=True)
            for block in blocks
        ])

    def _check(self) -> None:
        counts = set()
        for name, value in self._arrays.items():
            fields.find(name)
            counts.add((fields.split(name).view, len(value)))
        by_view = {view: {n for v, n in counts if v == view} for view, _ in counts}
        for view, sizes in by_view.items():
            if len(sizes) > 1:
                raise ValueError(f"the fields of view {view!r} disagree on the number of rows: {sorted(sizes)}")


def _width(arrays: Mapping[str, Array], view: str) -> int:
    """The columns of a view."""
    for name, value in arrays.items():
        if fields.split(name).view == view and fields.find(name).aligned:
            return int(value.shape[1])
    return 0


def _place_of(targets: str) -> str:
    view, _, chosen = fields.split(targets)
    return fields.join(view, "positions", chosen)


def _absent(block: Rows, name: str, blocks: Sequence[Rows]) -> Array:
    """The empty value of a field in a block that lacks it."""
    view, field, chosen = fields.split(name)
    count = block.count
    like = next((other[name] for other in blocks if name in other), None)
    if field == "positions":
        targets = next((block[key] for kind in ("targets", "values") if (key := fields.join(view, kind, chosen)) in block), None)
        if like is None or like.ndim == 1:  # of the whole row: 0 where there is a target
            return np.full(count, -1 if targets is None else 0, np.int32)
        return np.full((count, 0), -1, np.int32)
    assert like is not None  # only positions can be in no block at all
    if fields.find(name).per == "pair":
        return np.ones((count, _width(block, view), _width(block, view)), np.bool_)
    if field == "position_ids":
        return np.broadcast_to(np.arange(_width(block, view), dtype=like.dtype), (count, _width(block, view)))
    if fields.find(name).aligned:
        return np.zeros((count, _width(block, view), *like.shape[2:]), like.dtype)
    if field == "weights":
        return np.ones(block[fields.join(view, "targets", chosen)].shape if fields.join(view, "targets", chosen) in block
                       else (count, *([0] * (like.ndim - 1))), like.dtype)
    return np.zeros((count, *([0] if like.ndim > 1 else []), *like.shape[2:]), like.dtype)


@lru_cache(maxsize=256)
def _columns(width: int) -> Array:
    """0, 1, … in the narrowest type that all of them and `width` fit: narrow comparisons are two to three times as fast."""
    columns = np.arange(width, dtype=np.int16 if width < 1 << 15 else np.int64)
    columns.flags.writeable = False
    return columns


def columns_before(stop: Array, width: int) -> NDArray[np.bool_]:
    """(B, width) the columns that come before the `stop` (B,) of their row; a stop is at most `width`."""
    columns = _columns(width)
    return columns < stop.astype(columns.dtype)[:, None]


def count_true(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(B,) the number of true positions in each row; twice as fast as `np.count_nonzero`."""
    return np.add.reduce(chosen.view(np.uint8), axis=1, dtype=_columns(chosen.shape[1]).dtype).astype(np.int64)


def true_positions(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The true positions of a (B, L) array row by row: as flat indices, and their rows and columns."""
    flat = chosen.reshape(-1).nonzero()[0]
    rows = flat // chosen.shape[1]
    return flat, rows, flat - rows * chosen.shape[1]


def rows_and_columns(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the true positions of a (B, L) array, row by row; three times as fast as `np.nonzero` in 2-D."""
    return true_positions(chosen)[1:]


def _follow(positions: Array, index: Array, length: Array, inserted: Inserted | None, width: int) -> Array:
    """The new column of each old position after a splice, -1 if it is gone. The first copy counts."""
    real = (np.arange(index.shape[1]) < length[:, None]) & (index >= 0) & (index < width)
    if inserted is not None:
        real.reshape(-1)[inserted.at] = False
    rows, columns = np.nonzero(real)
    beyond = index.shape[1]
    inverse = np.full(len(index) * (width + 1), beyond, dtype=np.int64)
    np.minimum.at(inverse, rows * (width + 1) + index[rows, columns], columns)  # assignment keeps no order among copies
    inverse[inverse == beyond] = -1
    new_columns = np.take_along_axis(inverse.reshape(len(index), -1), np.where(positions < 0, width, positions), axis=1)
    return new_columns.astype(positions.dtype)
