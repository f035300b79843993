"""Words with a vector each, in memory or mapped from the disk; unseen words by their character n-grams where the model can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CheckpointError, UserError, did_you_mean, nearest, propose
from cloze.interop.vectors.subwords import Subwords

Matrix = NDArray[np.float32]
_CHECKED = 1 << 22  # numbers looked at together


@dataclass(frozen=True)
class Vectors:
    """Word vectors, the most frequent word first if the source states frequencies.

    Attributes:
        words: The words (N).
        own: The row of each word (N, D), float32; it may be mapped from a file and read-only.
        place: Where the vectors come from, for messages.
        subwords: How words are composed of n-grams (fastText). None: the vector of a word is its row.
        counts: How often each word occurred (N,). None: the source does not state it.
        lower: The words are lower-case, because the tokenizer lower-cases.
        marks: Prefixes of a word's spelling (`Ġ`, `▁`) that a look-up tries.
    """

    words: Sequence[str]
    own: Matrix
    place: str
    subwords: Subwords | None = None
    counts: NDArray[np.int64] | None = None
    lower: bool = False
    marks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        """Numbers per vector."""
        return int(self.own.shape[1])

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def matrix(self) -> Matrix:
        """The vector of every word (N, D): the rows themselves, or the means over rows and n-grams."""
        if self.subwords is None:
            return self.own
        matrix = self.subwords.compose(self.words, self.own)
        refuse_infinite(matrix, self.words, self.place)
        return matrix

    def row(self, word: str) -> int | None:
        """The row of a word as it is spelled (or lower-cased where the tokenizer does so), None if it has none."""
        spelling = word.lower() if self.lower else word
        for mark in ("", *self.marks):
            row = self.ids.get(mark + spelling)
            if row is not None:
                return row
        return None

    def find(self, word: str) -> Matrix | None:
        """The vector (D,) of a word, by its n-grams if it is unseen and the model has them; None if there is none."""
        row = self.row(word)
        if self.subwords is None:
            return None if row is None else np.array(self.own[row])
        if row is not None:
            return self.subwords.compose([self.words[row]], self.own[row : row + 1])[0]
        return self.subwords.unseen(word.lower() if self.lower else word)

    def vector(self, word: str) -> Matrix:
        """The same; a word without a vector is a `UserError` that names the nearest by spelling."""
        vector = self.find(word)
        if vector is None:
            raise self.unknown(word)
        return vector

    def unknown(self, word: str) -> UserError:
        """The error about a word without a vector."""
        return UserError(f"{word!r} is not among the {len(self):,} words of {self.place}.{alike(word, self.words)}")


def alike(word: str, words: Iterable[str]) -> str:
    """` Did you mean …?` with the words nearest by spelling; empty if none is near. Fast for a million words."""
    small = word.casefold()
    pairs = {small[i : i + 2] for i in range(len(small) - 1)} or {small}
    likely: list[tuple[float, int, str]] = []
    path = ""  # the first identifier that ends with the word, as /c/en/girl in ConceptNet
    for index, other in enumerate(words):
        if not path and other.endswith(f"/{word}"):
            path = other
        if abs(len(other) - len(word)) > 2:
            continue
        folded = other.casefold()
        if folded == small:
            return f" Did you mean {other!r}?"
        shared = sum(pair in folded for pair in pairs)
        if 2 * shared >= len(pairs) - 1:
            likely.append((-shared + 0.5 * abs(len(other) - len(word)), index, other))
    if path:
        return f" Did you mean {path!r}?"
    return f" {did_you_mean(nearest(word, [other for _, _, other in sorted(likely)[:60]]))}".rstrip()


def refuse_infinite(matrix: Matrix, words: Sequence[str], path: str) -> None:
    """Raise a `CheckpointError` for a row with a number that is not finite."""
    step = max(1, _CHECKED // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step]
        if not np.isfinite(block).all():
            row = int(np.flatnonzero(~np.isfinite(block).all(1))[0])
            column = int(np.flatnonzero(~np.isfinite(block[row]))[0])
            raise CheckpointError(
                f"{path}: number {column + 1} of {words[start + row]!r} (row {start + row + 1}) is {block[row, column]}; "
                f"expected finite numbers.\n  Training has diverged or the file is damaged: take an earlier checkpoint, or "
                f"copy it again."
            )


def refuse_repeated(
    words: Sequence[str], matrix: Matrix, path: str, repeated: str, *, unit: str = "row", first: int = 1
) -> tuple[list[str], Matrix, NDArray[np.int64] | None]:
    """Words and rows without repetitions, and the indices of the kept rows if some were dropped.

    `repeated`: `refuse` makes a word that comes twice a `CheckpointError`, `first` keeps its first row; `unit` and `first`
    say how rows are counted in the message.
    """
    if repeated not in ("refuse", "first"):
        raise UserError(f"unknown way with repeated words {repeated!r}. {propose(repeated, ('refuse', 'first'))}")
    seen: dict[str, int] = {}
    twice: list[tuple[str, int, int]] = []
    for row, word in enumerate(words):
        before = seen.setdefault(word, row)
        if before != row:
            twice.append((word, before, row))
    if not twice:
        return list(words), matrix, None
    if repeated == "refuse":
        word, earlier, later = twice[0]
        count = f"{len(twice)} words come again, the first is" if len(twice) > 1 else "a word comes twice:"
        raise CheckpointError(
            f"{path}: {count} {word!r} ({unit}s {earlier + first} and {later + first}); expected every word once.\n"
            f"  To keep the first of each: cloze import {path} --repeated first --out FOLDER"
        )
    indices = np.fromiter(seen.values(), np.int64, len(seen))
    return list(seen), matrix[indices], indices
