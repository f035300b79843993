"""Phrases of a tokenizer of whole words: pairs of words that become one token, such as new_york.

`phrases.py` finds the pairs. A tokenizer applies them (`Tokenizer.encode`), and so do the fast encoders of `chunks.py` and
`word_encoder.py`; its folder keeps them in `phrases.tsv`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CheckpointError

Int64 = NDArray[np.int64]
JOINER = "_"
PHRASES = "phrases.tsv"
_TITLE = "pass\tfirst\tsecond\tcount\tscore"


class Join(NamedTuple):
    """Two words that a pass joins, how often they stood together, and the score of the pair."""

    number: int  # of the pass, from 1
    first: str
    second: str
    times: int
    score: float

    @property
    def word(self) -> str:
        """The token that they become."""
        return f"{self.first}{JOINER}{self.second}"


class PairTable(NamedTuple):
    """The pairs of one pass by id: keys first · size + second, ascending, and the id of each phrase."""

    size: int
    keys: Int64
    made: NDArray[np.int32]
    begins: NDArray[np.bool_]  # (size,): whether an id is the first of a pair
    ends: NDArray[np.bool_]

    @classmethod
    def of(cls, first: Int64, second: Int64, phrase: Int64, size: int) -> PairTable:
        """From the ids of the words and of the phrases, all below `size`."""
        keys = first * size + second
        order = np.argsort(keys)
        begins, ends = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        begins[first], ends[second] = True, True
        return cls(size, keys[order], phrase[order].astype(np.int32), begins, ends)


def join_pairs(table: PairTable, ids: NDArray[np.int32], last: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The ids (T,) with the phrases of a pass in place of their first words, and which tokens remain (T,).

    `last` marks the tokens at the ends of lines, which no phrase crosses. Pairs are taken from left to right, and a word belongs
    to one phrase only (word2phrase.c: a phrase is not the first half of another in the same pass).
    """
    stays = np.ones(len(ids), np.bool_)
    at = np.flatnonzero(table.begins[ids[:-1]] & table.ends[ids[1:]] & ~last[:-1]) if len(ids) else np.zeros(0, np.int64)
    if not len(at):
        return ids, stays
    keys = ids[at].astype(np.int64) * table.size + ids[at + 1]
    index = np.minimum(np.searchsorted(table.keys, keys), len(table.keys) - 1)
    hit = table.keys[index] == keys
    at, index = at[hit], index[hit]
    number = np.arange(len(at))
    apart = np.ones(len(at), np.bool_)
    apart[1:] = np.diff(at) > 1
    chosen = (number - np.maximum.accumulate(np.where(apart, number, 0))) % 2 == 0  # of pairs that overlap, every other one
    at, index = at[chosen], index[chosen]
    joined = ids.copy()
    joined[at] = table.made[index]
    stays[at + 1] = False
    return joined, stays


class JoinedTokens(NamedTuple):
    """Tokens with phrases: ids (T',), offsets (n+1,) of the lines, and the first and the last word (T',) that each was before."""

    ids: NDArray[np.int32]
    offsets: Int64
    first: Int64
    last: Int64


class Joins:
    """The phrases of a tokenizer, pass by pass: those of a pass are made of words and of phrases of the passes before.

    >>> Joins([Join(1, "new", "york", 12, 340.0)]).words
    ('new_york',)
    """

    def __init__(self, pairs: Sequence[Join]) -> None:
        self.pairs = tuple(pairs)

    @property
    def words(self) -> tuple[str, ...]:
        """The spellings of the phrases."""
        return tuple(dict.fromkeys(pair.word for pair in self.pairs))

    @cached_property
    def hash(self) -> str:
        """A hash of the pairs and their passes."""
        lines = sorted(f"{pair.number}\t{pair.first}\t{pair.second}" for pair in self.pairs)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()

    def tables(self, ids: Mapping[str, int], size: int) -> list[PairTable]:
        """The tables of the passes for a vocabulary, which must have every word and phrase."""
        tables = []
        for number in sorted({pair.number for pair in self.pairs}):
            rows = [(ids[p.first], ids[p.second], ids[p.word]) for p in self.pairs if p.number == number]
            first, second, phrase = np.array(rows, np.int64).reshape(-1, 3).T
            tables.append(PairTable.of(first, second, phrase, size))
        return tables

    def write(self, folder: Path) -> None:
        """Save the pairs, with their counts and scores for the reader."""
        rows = [f"{p.number}\t{p.first}\t{p.second}\t{p.times}\t{p.score:.6g}" for p in self.pairs]
        (folder / PHRASES).write_text("\n".join([_TITLE, *rows]) + "\n", encoding="utf-8", newline="\n")


def join_lines(tables: Sequence[PairTable], ids: NDArray[np.int32], offsets: Int64) -> JoinedTokens:
    """Tokens (T,) of lines at `offsets` (n+1,), joined pass by pass."""
    last = np.zeros(len(ids), np.bool_)
    ends = offsets[1:]
    last[ends[ends > offsets[:-1]] - 1] = True
    first = np.arange(len(ids))
    here = ids
    for table in tables:
        joined, stays = join_pairs(table, here, last)
        gone = np.flatnonzero(~stays)
        last[gone - 1] |= last[gone]
        here, first, last = joined[stays], first[stays], last[stays]
    final = np.append(first[1:], len(ids)) - 1
    return JoinedTokens(here, np.searchsorted(first, offsets), first, final[: len(first)])


def read_joins(folder: Path) -> Joins | None:
    """The phrases saved with a tokenizer, None if there are none. Raises `CheckpointError` for a damaged file."""
    path = folder / PHRASES
    if not path.is_file():
        return None
    title, *lines = path.read_text(encoding="utf-8").split("\n")
    joins = []
    for number, line in enumerate(lines, 2):
        if not line:
            continue
        try:
            turn, first, second, times, score = line.split("\t")
            joins.append(Join(int(turn), first, second, int(times), float(score)))
        except ValueError:
            raise CheckpointError(
                f"{path}:{number}: {line!r} is not a phrase; expected {_TITLE!r}. Copy the folder again."
            ) from None
    if title != _TITLE:
        raise CheckpointError(f"{path}: the first line is {title!r}; expected {_TITLE!r}. Copy the folder again.")
    return Joins(joins)
