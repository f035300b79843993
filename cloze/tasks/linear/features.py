"""Features as sparse rows: they are counted, numbered and weighted, and multiplied by coefficients, with numpy alone."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Weighting = Literal["tfidf", "binary"]
Bags = tuple[Sequence[str], ...]  # the features of a row in each block, as often as they occur

MOST = 1 << 17  # features of a block; of more, those that occur in the most rows
_TOGETHER = 1 << 22  # numbers that a product holds at a time


class SparseRows(NamedTuple):
    """Sparse rows: the columns and the values of the entries of all rows, and where each row begins (and the last one ends)."""

    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def product(self, coefficients: NDArray[np.float32]) -> NDArray[np.float32]:
        """The product with (V, K) as (N, K)."""
        result = np.zeros((len(self), coefficients.shape[1]), np.float32)
        most = max(_TOGETHER // max(coefficients.shape[1], 1), 1)
        begin = 0
        while begin < len(self):
            end = int(np.searchsorted(self.starts, self.starts[begin] + most, side="right")) - 1
            end = min(max(end, begin + 1), len(self))
            first, last = self.starts[begin], self.starts[end]
            terms = coefficients[self.columns[first:last]] * self.values[first:last, None]
            filled = np.flatnonzero(np.diff(self.starts[begin : end + 1]))  # an empty row would repeat the next one
            if len(filled):
                result[begin + filled] = np.add.reduceat(terms, self.starts[begin + filled] - first, axis=0)
            begin = end
        return result


@dataclass(frozen=True)
class FeatureBlock:
    """Features of one kind with their numbers from 0, and what a count of each is multiplied by (V,).

    In a block of weighting `tfidf` a count c has the value (1 + ln c) · idf, and rows have length 1; in one of weighting `binary`
    every feature of a row has the value 1.
    """

    name: str
    weighting: Weighting
    numbers: dict[str, int]
    idf: NDArray[np.float32]

    def weighted(self, counted: SparseRows) -> NDArray[np.float32]:
        """The values of counted features."""
        if self.weighting == "binary":
            return np.ones_like(counted.values)
        values = (1.0 + np.log(counted.values)) * self.idf[counted.columns]
        sizes = np.diff(counted.starts)
        squares = np.zeros(len(counted), np.float64)
        filled = np.flatnonzero(sizes)
        if len(filled):
            squares[filled] = np.add.reduceat(values.astype(np.float64) ** 2, counted.starts[filled])
        norms = np.sqrt(squares)
        return (values / np.repeat(np.where(norms > 0, norms, 1.0), sizes)).astype(np.float32)


@dataclass(frozen=True)
class FeatureSpace:
    """All blocks of features, whose columns follow one another."""

    blocks: tuple[FeatureBlock, ...]

    @property
    def width(self) -> int:
        """The number of features."""
        return sum(len(block.numbers) for block in self.blocks)

    @classmethod
    def learned(cls, blocks: Sequence[tuple[str, Weighting]], bags: Iterable[Bags]) -> tuple[FeatureSpace, SparseRows]:
        """The features of some rows, and these rows. `blocks` are names and weightings."""
        counters = [_Counter({}, grows=True) for _ in blocks]
        _count(counters, bags)
        counts = [counter.kept() for counter in counters]
        features = cls(
            tuple(
                FeatureBlock(name, weighting, numbers, idf)
                for (name, weighting), (numbers, idf, _) in zip(blocks, counts, strict=True)
            )
        )
        return features, features._joined([rows for _, _, rows in counts])

    def rows(self, bags: Iterable[Bags]) -> SparseRows:
        """Rows of these features; others do not count."""
        counters = [_Counter(block.numbers) for block in self.blocks]
        _count(counters, bags)
        return self._joined([counter.rows() for counter in counters])

    def _joined(self, counted: Sequence[SparseRows]) -> SparseRows:
        """The rows of all blocks next to each other."""
        sizes = np.stack([np.diff(rows.starts) for rows in counted])
        starts = np.concatenate([[0], np.cumsum(sizes.sum(0))]).astype(np.int64)
        before = np.cumsum(sizes, axis=0) - sizes  # the entries of a row in earlier blocks
        columns, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.float32)
        offset = 0
        for block, rows, earlier in zip(self.blocks, counted, before, strict=True):
            lengths = np.diff(rows.starts)
            target = np.arange(len(rows.columns)) + np.repeat(starts[:-1] + earlier - rows.starts[:-1], lengths)
            columns[target], values[target] = rows.columns + offset, block.weighted(rows)
            offset += len(block.numbers)
        return SparseRows(columns, values, starts)


class _Counter:
    """Counts the features of rows; one that `grows` numbers those that it has not seen."""

    def __init__(self, numbers: dict[str, int], *, grows: bool = False) -> None:
        self.numbers, self.grows = numbers, grows
        self.columns, self.counts, self.starts = array("i"), array("i"), array("q", [0])

    def add(self, bag: Sequence[str]) -> None:
        numbers = self.numbers
        for feature, count in Counter(bag).items():
            number = numbers.get(feature)
            if number is None:
                if not self.grows:
                    continue
                number = numbers[feature] = len(numbers)
            self.columns.append(number)
            self.counts.append(count)
        self.starts.append(len(self.columns))

    def rows(self) -> SparseRows:
        columns, counts, starts = self.columns, self.counts, self.starts
        return SparseRows(np.array(columns, np.int32), np.array(counts, np.float32), np.array(starts, np.int64))

    def kept(self) -> tuple[dict[str, int], NDArray[np.float32], SparseRows]:
        """At most `MOST` features with their new numbers, their inverse document frequencies, and the rows of them."""
        rows = self.rows()
        frequency = np.bincount(rows.columns, minlength=len(self.numbers))
        chosen = np.sort(np.argsort(-frequency, kind="stable")[:MOST])
        renumbered = np.full(len(self.numbers), -1, np.int32)
        renumbered[chosen] = np.arange(len(chosen), dtype=np.int32)
        numbers = {feature: int(new) for feature, old in self.numbers.items() if (new := renumbered[old]) >= 0}
        idf = np.log((1 + len(rows)) / (1 + frequency[chosen])) + 1.0
        columns = renumbered[rows.columns]
        inside = columns >= 0
        sums = np.concatenate([[0], np.cumsum(inside)])
        return numbers, idf.astype(np.float32), SparseRows(
            columns[inside], rows.values[inside], sums[rows.starts].astype(np.int64)
        )


def _count(counters: Sequence[_Counter], bags: Iterable[Bags]) -> None:
    for row in bags:
        for counter, bag in zip(counters, row, strict=True):
            counter.add(bag)


def prefixed(prefix: str, features: Iterable[str]) -> Iterator[str]:
    """The features with a prefix that tells where they are from."""
    return (f"{prefix}{feature}" for feature in features)
