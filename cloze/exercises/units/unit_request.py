"""The input and the result of a unit of masking, and functions that most units use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.units.lengths import LengthLaw
from cloze.rng import Draw, UInt32
from cloze.rows import Rows, columns_before, count_true, rows_and_columns

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
NEVER, LAST = np.uint32(0xFFFFFFFF), np.uint64(0xFFFFFFFFFFFFFFFF)  # keys behind all others


class MaskOptions(Protocol):
    """The arguments of `mask` that units read."""

    @property
    def unit(self) -> str | list[str]: ...
    @property
    def rate(self) -> float: ...
    @property
    def of(self) -> str: ...
    @property
    def rounding(self) -> str: ...
    @property
    def lengths(self) -> LengthLaw | None: ...
    @property
    def words(self) -> bool: ...
    @property
    def count(self) -> int | None: ...
    @property
    def mean(self) -> float: ...
    @property
    def start(self) -> dict[str, float] | None: ...
    @property
    def power(self) -> float: ...
    @property
    def counts(self) -> Ints | None: ...


class BlockWords(NamedTuple):
    """The words of a block, W of them in its richest row.

    `word` (B, L): ordinal of each free token's word. `first`, `stop`, `last` (B, W): the column where a word starts, the one
    after its end, and the ordinal of the last word that follows without a gap. `sizes` (B, W): tokens, 0 for no word.
    """

    word: Ints
    first: Ints
    stop: Ints
    last: Ints
    sizes: Ints


@dataclass(frozen=True)
class UnitRequest:
    """Choose `number` (B,) of the `free` tokens (B, L) of these rows, as `mask` says."""

    mask: MaskOptions
    rows: Rows
    draw: Draw
    free: Bools
    number: Ints

    @cached_property
    def starts(self) -> Bools:
        """(B, L) where words start; every token is one if `words` is false."""
        return self.rows["word_start"] if self.mask.words else self.free

    @property
    def rates(self) -> Any:
        """The rate of every token: a number, or (B, L) if some are favoured."""
        return self.mask.rate * self.rows["favour"] if "favour" in self.rows else self.mask.rate

    def odds(self, starts: Bools, word: Ints, sizes: Ints) -> Any:
        """The rate of every unit: a number, or (B, W) if some are favoured, that of its first token.

        `starts` (B, L) is where units start, `word` (B, L) the unit of each token and `sizes` (B, W) their tokens.
        """
        if "favour" not in self.rows:
            return self.mask.rate
        rates = np.zeros(sizes.shape)
        row, column = rows_and_columns(starts)
        rates[row, word[row, column]] = self.rates[row, column]
        return rates

    @cached_property
    def words(self) -> BlockWords:
        """The words, which units of several words count."""
        return words_of(self.free, self.starts)


@dataclass(frozen=True)
class Unit:
    """One way to choose: `choose` gives `masked` and the `marks` by full name, and reads the fields it `needs`.

    `words`: it counts words, or tokens if the recipe says so; `by_words`: its rate may refer to words; `lengths`: its spans have
    lengths; `independent`: it can draw each of its units by a coin; `unframed`: it usually comes before the frame.
    """

    choose: Callable[[UnitRequest], dict[str, NDArray[Any]]]
    needs: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    lengths: bool = False
    words: bool = False
    by_words: bool = False
    independent: bool = False
    unframed: bool = False


def exactly(number: Ints, free: Bools, bits: UInt32) -> Bools:
    """Choose exactly `number` (B,) of the `free` positions (B, L) of each row by random `bits` (B, L): those with the smallest,
    of equal ones the first, so that the choice does not depend on L."""
    keys = np.where(free, bits, NEVER)
    most = int(number.max(initial=0))
    if most == 0:
        return np.zeros_like(free)
    smallest = np.sort(keys, axis=1)
    threshold = smallest[np.arange(len(keys)), np.maximum(number - 1, 0)]
    chosen: Bools = keys <= threshold[:, None]
    chosen &= free
    if int(number.min()) == 0:
        chosen &= (number > 0)[:, None]
    tied = np.flatnonzero(count_true(chosen) > number)
    if len(tied):
        unique = keyed(free[tied], bits[tied])
        threshold = np.sort(unique, axis=1)[np.arange(len(tied)), number[tied] - 1]
        chosen[tied] = unique <= threshold[:, None]
    return chosen


def keyed(exists: Bools, bits: UInt32) -> NDArray[np.uint64]:
    """(B, N) keys that sort the existing positions into a random order, without ties, before all others: random bits above the
    number of the column, so that the order does not depend on N."""
    keys = bits.astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= np.arange(exists.shape[1], dtype=np.uint64)
    np.copyto(keys, LAST, where=~exists)
    return keys


def sized(free: Bools, word_start: Bools) -> tuple[Bools, Ints, Ints]:
    """Where the words among the free tokens start, each token's word (B, L), and the tokens of each word (B, W).

    A word never crosses a position that is not free: the first free position after it starts a word.
    """
    count = len(free)
    starts = free & word_start
    starts[:, 0] |= free[:, 0]
    starts[:, 1:] |= free[:, 1:] & ~free[:, :-1]
    word = np.cumsum(starts, axis=1) - 1
    words = max(int(word[:, -1].max(initial=0)) + 1, 1)
    flat = (np.arange(count)[:, None] * words + word)[free]
    return starts, np.maximum(word, 0), np.bincount(flat, minlength=count * words).reshape(count, words)


def words_of(free: Bools, word_start: Bools) -> BlockWords:
    """The words among the free tokens and their columns."""
    starts, word, sizes = sized(free, word_start)
    count, words = sizes.shape
    first = np.full((count, words), free.shape[1], np.int64)
    first[sizes > 0] = rows_and_columns(starts)[1]
    stop = first + sizes
    ends = np.ones((count, words), bool)  # no word follows without a gap
    ends[:, :-1] = first[:, 1:] != stop[:, :-1]
    ordinal = np.where(ends, np.arange(words), words)
    last = np.minimum.accumulate(ordinal[:, ::-1], axis=1)[:, ::-1]
    return BlockWords(word, first, stop, last, sizes)


def columns_of(chosen: Bools) -> Ints:
    """(B, M) the columns of the true positions of each row in order; columns beyond their number are 0."""
    column, number = rows_and_columns(chosen)[1], count_true(chosen)
    columns = np.zeros((len(chosen), max(int(number.max(initial=0)), 1)), np.int64)
    columns[columns_before(number, columns.shape[1])] = column
    return columns


def slots(number: Ints) -> Ints:
    """0, 1, …, number[0] − 1, 0, 1, …, number[1] − 1, …: the slot of each item listed row by row."""
    return np.arange(int(number.sum())) - np.repeat(np.cumsum(number) - number, number)


def numbered(masked: Bools, begins: Bools) -> NDArray[np.int32]:
    """(B, L) the number of each masked token's span from 1, 0 outside. A span begins where `begins` is true, and after a gap."""
    begins = begins & masked
    begins[:, 0] |= masked[:, 0]
    begins[:, 1:] |= masked[:, 1:] & ~masked[:, :-1]
    return np.cumsum(begins, axis=1, dtype=np.int32) * masked


def covered(starts: tuple[Ints, Ints], stops: tuple[Ints, Ints], shape: tuple[int, ...]) -> Ints:
    """(B, L) how many intervals cover each column; they start and stop at (rows, columns)."""
    count, width = shape
    change = np.bincount(starts[0] * (width + 1) + starts[1], minlength=count * (width + 1))
    change -= np.bincount(stops[0] * (width + 1) + stops[1], minlength=count * (width + 1))
    return np.cumsum(change.reshape(count, width + 1)[:, :width], axis=1)
