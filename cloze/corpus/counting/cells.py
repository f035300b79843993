"""Cells of a word-by-word matrix on disk, tile by tile, and the order in which an epoch visits them.

    cells.json    version, what was counted, vocabulary, how many cells, their mass; written last
    rows.bin      int32, the row of every cell
    columns.bin   int32, its column
    counts.bin    float32, its count
    tiles.bin     int64, the first cell of every tile that has one, and the number of cells at the end

A tile is TILE x TILE words. Its vectors fit into the cache, so training is twice as fast as with cells in an arbitrary order. A
tile of many cells is cut into pieces of PIECE; an epoch visits the pieces in random order and the cells of a piece in random
order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze import kernels, rng
from cloze.array_files import write_values
from cloze.corpus.sources.plan import ranges
from cloze.errors import CorpusError
from cloze.untrusted import parse_json

Int64 = NDArray[np.int64]

VERSION = 1
HEADER = "cells.json"
TILE = 1024
PIECE = 1 << 14
_FILES = {"rows.bin": np.int32, "columns.bin": np.int32, "counts.bin": np.float32, "tiles.bin": np.int64}
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class CooccurrenceCells:
    """The memory-mapped cells of a folder; N per array."""

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self.folder, self.header = folder, header
        self.vocab_size = int(header["vocab_size"])
        self.mass = float(header["mass"])
        self.tokens = int(header["tokens"])
        self.rows: NDArray[np.int32] = _map(folder / "rows.bin", np.int32)
        self.columns: NDArray[np.int32] = _map(folder / "columns.bin", np.int32)
        self.counts: NDArray[np.float32] = _map(folder / "counts.bin", np.float32)
        self.tiles: Int64 = _map(folder / "tiles.bin", np.int64)

    @classmethod
    def open(cls, folder: Path) -> CooccurrenceCells | None:
        """The cells of a folder; None if there are none, or not all of them.

        Raises `CorpusError` if a value is out of range: compiled code uses them as addresses without bounds checks.
        """
        try:
            header = parse_json((folder / HEADER).read_text(encoding="utf-8"))
            sizes = {name: (folder / name).stat().st_size for name in _FILES}
            is_complete = header["version"] == VERSION and sizes == header["bytes"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not is_complete:
            return None
        cells = cls(folder, header)
        cells._check()
        return cells

    def __len__(self) -> int:
        return len(self.counts)

    def _check(self) -> None:
        words = f"the numbers of {self.vocab_size:,} words, from 0"
        for name, array in (("rows.bin", self.rows), ("columns.bin", self.columns)):
            lowest, highest = _range(array)
            if lowest < 0 or highest >= self.vocab_size:
                raise self._damaged(name, int(highest if highest >= self.vocab_size else lowest), words)
        lowest, highest = _range(self.counts)
        if not (lowest >= 0 and highest < np.inf):
            raise self._damaged("counts.bin", float(highest if lowest >= 0 else lowest), "finite counts, 0 or more")
        borders = np.concatenate([[0], self.tiles, [len(self)]])
        if (np.diff(borders) < 0).any() or (len(self.tiles) and self.tiles[-1] != len(self)):
            raise self._damaged("tiles.bin", "borders that fall or end elsewhere", f"rising ones that end at {len(self):,} cells")
        if not len(self.columns) == len(self.rows) == len(self):
            raise self._damaged("rows.bin", f"{len(self.rows):,} rows", f"{len(self):,}, as many as counts.bin")

    def _damaged(self, name: str, value: object, expected: str) -> CorpusError:
        return CorpusError(
            f"{self.folder / name}: holds {value}, expected {expected}. The file is damaged.\n"
            f"  Delete the folder {self.folder}; the next run counts it again."
        )

    @cached_property
    def pieces(self) -> Int64:
        """The first cell of every piece, and the number of cells at the end, (pieces + 1,)."""
        sizes = np.diff(self.tiles)
        parts = -(-sizes // PIECE)
        return np.append(np.repeat(self.tiles[:-1], parts) + ranges(parts) * PIECE, len(self)).astype(np.int64)

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        """Σ over columns, (V,)."""
        return self._sums(self.rows)

    @cached_property
    def column_sums(self) -> NDArray[np.float64]:
        """Σ over rows, (V,)."""
        return self._sums(self.columns)

    def _sums(self, index: NDArray[np.int32]) -> NDArray[np.float64]:
        sums = np.zeros(self.vocab_size)
        for low in range(0, len(self), 1 << 22):
            part = slice(low, low + (1 << 22))
            sums += np.bincount(index[part], self.counts[part], self.vocab_size)
        return sums


@dataclass(frozen=True)
class CellPlan:
    """One epoch: item k is a cell of the piece `order[p]`, where p is the last with `ends[p] <= k`."""

    epoch: int
    order: Int64            # (P,) pieces in order
    ends: Int64             # (P + 1,) items before each of them, and all items at the end
    starts: Int64           # (P,) first cell of each
    keys: NDArray[np.uint64]  # (P,) random key of the order within each

    @classmethod
    def of(cls, pieces: Int64, epoch: int, *address: int | str) -> CellPlan:
        """The plan of an epoch: a pure function of the pieces, the address and the epoch."""
        order = rng.permutation(len(pieces) - 1, *address, "pieces", epoch)
        sizes = np.diff(pieces)[order]
        ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(epoch, order, ends, pieces[order], rng.row_keys(*address, "cells", epoch, items=order))

    def __len__(self) -> int:
        return int(self.ends[-1])

    def address(self, items: Int64, static: bool) -> Int64:
        """A number that identifies each item: itself."""
        return items

    def cells(self, items: Int64) -> Int64:
        """The cells of some items of the epoch."""
        block = np.searchsorted(self.ends, items, "right") - 1
        sizes = self.ends[block + 1] - self.ends[block]
        return self.starts[block] + shuffled(items - self.ends[block], sizes, self.keys[block])


def shuffled(index: Int64, size: Int64, key: NDArray[np.uint64]) -> Int64:
    """The position of each index in a random permutation of `size` given by `key`, computed without storing it.

    Two rounds of multiplication and xor-shift on as many bits as the size needs, repeated while the result is out of range.
    `cloze/kernels/vectors/glove.py` computes the same one index at a time.
    """
    bits = _bits(size)
    mask = (np.uint64(1) << bits) - np.uint64(1)
    x, out = index.astype(np.uint64), np.zeros(len(index), np.int64)
    todo = np.arange(len(index))  # the indices whose result is out of range so far
    while len(todo):
        m, half, k = mask[todo], (bits[todo] + np.uint64(1)) >> np.uint64(1), key[todo]
        y = x[todo]
        y = (y * _FIRST + k) & m
        y ^= y >> half
        y = (y * _SECOND + (k >> np.uint64(32))) & m
        y ^= y >> half
        x[todo] = y
        inside = y < size[todo].astype(np.uint64)
        out[todo[inside]] = y[inside].astype(np.int64)
        todo = todo[~inside]
    return out


def _bits(size: Int64) -> NDArray[np.uint64]:
    """The number of bits of the numbers below each size, at least 1."""
    return np.maximum(np.ceil(np.log2(np.maximum(size, 2))), 1).astype(np.uint64)


class CellWriter:
    """Writes the cells of pairs of words into their tiles: call `tally` with every block of pairs, then `place` with every block.

    A pair's key is its first id times the vocabulary size, plus its second. `symmetric`: a pair stands for two cells, and a word
    next to itself counts twice. Cells of a tile keep the order of the pairs; pass them in ascending order, so that the file does
    not depend on how they were counted.
    """

    def __init__(self, folder: Path, vocab_size: int, *, symmetric: bool, compiled: bool) -> None:
        self.folder, self.vocab_size, self.symmetric, self.compiled = folder, vocab_size, symmetric, compiled
        self.across = -(-vocab_size // TILE)
        self.sizes = np.zeros(self.across**2, np.int64)
        self._next: Int64 | None = None
        self._arrays: list[NDArray[Any]] = []

    def tally(self, keys: NDArray[np.uint64]) -> None:
        """Count a block of pairs by tile."""
        if self.compiled:
            kernels.find("pairs").tally(keys, self.vocab_size, TILE, self.across, self.symmetric, self.sizes)
            return
        rows, columns, _ = self._cells(keys, np.zeros(len(keys)))
        self.sizes += np.bincount(self._tile(rows, columns), minlength=len(self.sizes))

    def place(self, keys: NDArray[np.uint64], sums: NDArray[np.float64]) -> None:
        """Put the cells of a block of pairs into their tiles."""
        if self._next is None:
            total = int(self.sizes.sum())
            if not total:
                return
            self._next = np.cumsum(self.sizes) - self.sizes
            self._arrays = [
                np.memmap(self.folder / name, dtype=dtype, mode="w+", shape=(total,))
                for name, dtype in list(_FILES.items())[:3]
            ]
        if self.compiled:
            kernels.find("pairs").place(keys, sums, self.vocab_size, TILE, self.across, self.symmetric, self._next, *self._arrays)
            return
        # Cells (N,), sorted by tile. Of each tile that has one, (tiles,): `first` and `sizes`. A cell goes to
        # where its tile stands in the files, plus its rank among the cells of the tile.
        rows, columns, counts = self._cells(keys, sums)
        tile = self._tile(rows, columns)
        order = np.argsort(tile, kind="stable")
        tile = tile[order]
        first = np.flatnonzero(np.append(True, tile[1:] != tile[:-1])) if len(tile) else np.zeros(0, np.int64)
        sizes = np.diff(np.append(first, len(tile)))
        rank = np.arange(len(tile)) - np.repeat(first, sizes)
        where = self._next[tile] + rank
        self._next[tile[first]] += sizes
        for array, values in zip(self._arrays, (rows, columns, counts), strict=True):
            array[where] = values[order]

    def finish(self, header: Mapping[str, Any]) -> CooccurrenceCells:
        """Write the header and open the folder."""
        if self._next is None:
            for name in list(_FILES)[:3]:
                (self.folder / name).write_bytes(b"")
        ends = np.append(0, np.cumsum(self.sizes))
        mass = 0.0
        if self._arrays:
            counts = self._arrays[2]
            mass = float(sum(counts[low : low + (1 << 22)].sum(dtype=np.float64) for low in range(0, len(counts), 1 << 22)))
        for array in self._arrays:
            array.flush()  # type: ignore[attr-defined]
        self._arrays = []
        full = np.flatnonzero(self.sizes)
        write_values(self.folder / "tiles.bin", np.append(ends[full], ends[-1]).astype(np.int64))
        sizes = {name: (self.folder / name).stat().st_size for name in _FILES}
        record = {"version": VERSION, **header, "vocab_size": self.vocab_size, "cells": int(ends[-1]), "mass": mass}
        record["bytes"] = sizes
        (self.folder / HEADER).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        cells = CooccurrenceCells.open(self.folder)
        if cells is None:
            raise CorpusError(f"{self.folder}: the co-occurrences just written cannot be read back. Is the disk full?")
        return cells

    def _cells(self, keys: NDArray[np.uint64], sums: NDArray[np.float64]) -> tuple[Int64, Int64, NDArray[np.float64]]:
        """Rows, columns and counts of the cells of pairs; the two cells of a pair are adjacent."""
        size = np.uint64(self.vocab_size)
        first, second = (keys // size).astype(np.int64), (keys % size).astype(np.int64)
        if not self.symmetric:
            return first, second, sums
        same = first == second
        # (pairs, 2) flattened, without the second cell of a word next to itself: (cells,).
        mask = np.stack([np.ones(len(keys), np.bool_), ~same], axis=1).ravel()
        rows, columns = (np.stack(pair, axis=1).ravel()[mask] for pair in ((first, second), (second, first)))
        return rows, columns, np.repeat(np.where(same, 2 * sums, sums), 2)[mask]

    def _tile(self, rows: Int64, columns: Int64) -> Int64:
        return (rows // TILE) * self.across + columns // TILE


def _range(array: NDArray[Any]) -> tuple[Any, Any]:
    """The minimum and maximum of an array, read in parts that fit memory; NaN if it contains one, 0 if it is empty."""
    parts = [array[low : low + (1 << 22)] for low in range(0, len(array), 1 << 22)]
    ranges = [(part.min(), part.max()) for part in parts] or [(0, 0)]
    return np.min([low for low, _ in ranges]), np.max([high for _, high in ranges])


def _map(path: Path, dtype: type) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
