"""A lexicon of n-grams: sequences of tokens with an id each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import LookUp
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.text.matching import read_list

Int64 = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_CHUNK = 1 << 22        # tokens counted at a time
_FORGET = 1 << 24       # distinct n-grams of one length beyond which those seen once are dropped
_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class Matches(NamedTuple):
    """The n-grams found in a block of rows, (M,) each, sorted by row, start and size; item: their ids."""

    row: Int64
    start: Int64
    size: Int64
    item: Int64


@register("table", "lexicon")
class Lexicon(LookUp):
    """The n-grams that ZEN reads in addition to characters (Diao et al. 2020, §2.1): counted in the corpus, or from a list.

    lengths: the minimum and maximum number of tokens.
    most: how many n-grams to keep, the most frequent ones of all lengths together.
    min_count: the minimum frequency.
    file: a list to use instead, one n-gram per line as text, which the store's tokenizer reads; entries of other lengths are
      ignored.

    No n-gram contains special tokens or [UNK].

    Differs: here counts decide; how ZEN's authors chose their list, which has the frequency of each, is not published.
    """

    def __init__(
        self, *, lengths: tuple[int, int] = (2, 7), most: Count = 100_000, min_count: Count = 5, file: str | None = None
    ) -> None:
        shortest, longest = lengths
        if not 1 <= shortest <= longest <= 16:
            raise RecipeError(f"lexicon.lengths: {list(lengths)}; expected the fewest and the most tokens, such as [2, 7].")
        if most < 1 or min_count < 1:
            raise RecipeError(f"lexicon: most {most}, min_count {min_count}; expected 1 or more.")
        self.lengths = (shortest, longest)
        self.most = most
        self.min_count = min_count
        self.file = file

    def bind(self, store: Store) -> BoundLexicon:
        """The lexicon for one store; the same for the same store. Raises `CorpusError` if it would be empty."""
        grams = self._counted(store) if self.file is None else self._listed(store, self.file)
        if not len(grams):
            raise CorpusError(
                f"{store.path}: the lexicon is empty: no n-gram of {self.lengths[0]} to {self.lengths[1]} tokens "
                + (f"occurs {self.min_count} times.\n  Give more text, or a lower min_count." if self.file is None
                   else f"in {self.file}.")
            )
        return BoundLexicon(np.concatenate([np.full((1, self.lengths[1]), -1, dtype=np.int32), grams]))

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundLexicon:
        """The bound lexicon from `BoundLexicon.arrays`. Raises `CorpusError` for any other arrays."""
        grams = arrays.get("grams")
        if grams is None or grams.ndim != 2 or not len(grams):
            raise CorpusError("a lexicon: expected n-grams (size, longest). The file is damaged: copy it again.")
        return BoundLexicon(grams)

    def _counted(self, store: Store) -> NDArray[np.int32]:
        shortest, longest = self.lengths
        best: list[tuple[Int64, NDArray[np.int32]]] = []
        for size in range(shortest, longest + 1):
            counts, first = _count(store, size, self.min_count)
            grams = np.full((len(first), longest), -1, dtype=np.int32)
            if len(first):
                grams[:, :size] = store.tokens[first[:, None] + np.arange(size)]
            best.append((counts, grams))
        counts, grams = np.concatenate([c for c, _ in best]), np.concatenate([g for _, g in best])
        # Ties in frequency go to the smaller ids, so that the list does not depend on where an n-gram occurs.
        order = np.lexsort((*grams.T[::-1], -counts))
        return grams[order[: self.most]]

    def _listed(self, store: Store, file: str) -> NDArray[np.int32]:
        shortest, longest = self.lengths
        tokenizer = store.tokenizer()
        entries = list(dict.fromkeys(read_list(file, "lexicon.file")))
        special = set(tokenizer.special_ids.tolist())
        gram_ids: dict[tuple[int, ...], None] = {}
        for encoded in tokenizer.encode_batch(entries):
            ids = tuple(encoded.ids.tolist())
            if shortest <= len(ids) <= longest and special.isdisjoint(ids):
                gram_ids[ids] = None
        grams = np.full((min(len(gram_ids), self.most), longest), -1, dtype=np.int32)
        for row, ids in zip(grams, gram_ids, strict=False):
            row[: len(ids)] = ids
        return grams


class BoundLexicon:
    """N-grams with ids from 1 on, in order of their frequency; 0 is padding.

    `grams` (size, longest) int32 holds their tokens, padded with -1; row 0 is empty. `size` is the number of ids including
    padding, as an embedding needs it.
    """

    def __init__(self, grams: NDArray[np.int32]) -> None:
        self.grams = np.ascontiguousarray(grams, dtype=np.int32)
        self.size = len(grams)
        sizes = (self.grams >= 0).sum(axis=1)
        self._tables: list[tuple[int, Hashes, Int64]] = []
        for size in np.unique(sizes[1:]).tolist():
            items = np.flatnonzero(sizes == size)
            hashes = _hashes(self.grams[items, :size], size)[:, 0]
            order = np.argsort(hashes)
            self._tables.append((size, hashes[order], items[order]))

    @property
    def hash(self) -> str:
        """The sha256 of the n-grams in their order."""
        return hashlib.sha256(self.grams.tobytes()).hexdigest()

    def match(self, tokens: NDArray[Any], length: NDArray[np.integer]) -> Matches:
        """Every n-gram of every row: tokens (B, L), length (B,). N-grams may overlap."""
        matches: list[tuple[Int64, Int64, Int64, Int64]] = []
        for size, hashes, items in self._tables:
            if tokens.shape[1] < size:
                continue
            hashed = _hashes(tokens, size)
            index = np.minimum(np.searchsorted(hashes, hashed), len(hashes) - 1)
            inside = np.arange(hashed.shape[1]) + size <= np.asarray(length)[:, None]
            row, start = np.nonzero((hashes[index] == hashed) & inside)
            matches.append((row, start, np.full(len(row), size, dtype=np.int64), items[index[row, start]]))
        if not matches:
            nothing = np.zeros(0, dtype=np.int64)
            return Matches(nothing, nothing, nothing, nothing)
        row, start, sizes, item = (np.concatenate(column) for column in zip(*matches, strict=True))
        order = np.lexsort((sizes, start, row))
        return Matches(row[order], start[order], sizes[order], item[order])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint; `Lexicon.restored` reads it."""
        return {"grams": self.grams}


def _hashes(tokens: NDArray[Any], size: int) -> Hashes:
    """A 64-bit hash of every n-gram of `size` tokens: (B, L) → (B, L - size + 1). Collisions are improbable enough to ignore."""
    ids = tokens.astype(np.uint64) + np.uint64(1)
    count = ids.shape[1] - size + 1
    rolling = np.zeros((len(ids), count), dtype=np.uint64)
    for offset in range(size):
        rolling += ids[:, offset : offset + count]
        rolling *= _STEP
        rolling ^= rolling >> _SHIFT
    return rolling


def _count(store: Store, size: int, min_count: int) -> tuple[Int64, Int64]:
    """Counts of the n-grams of one length that occur often enough, and a place of each in the store."""
    tokens = store.tokens
    special = np.array(sorted(store.header["roles"].values()), dtype=tokens.dtype)
    hashes = np.zeros(0, dtype=np.uint64)
    counts = places = np.zeros(0, dtype=np.int64)
    for low in range(0, max(len(tokens) - size + 1, 0), _CHUNK):
        part = np.asarray(tokens[low : low + _CHUNK + size - 1])
        begin = np.flatnonzero(_whole(store, part, low, size, special))
        hashed, first, times = np.unique(_hashes(part[None], size)[0][begin], return_index=True, return_counts=True)
        every = np.concatenate([hashes, hashed])
        hashes, at, inverse = np.unique(every, return_index=True, return_inverse=True)
        counts = np.bincount(inverse, weights=np.concatenate([counts, times]), minlength=len(hashes)).astype(np.int64)
        places = np.concatenate([places, low + begin[first]])[at]
        if len(hashes) > _FORGET:
            frequent = counts > 1
            hashes, counts, places = hashes[frequent], counts[frequent], places[frequent]
    frequent = counts >= min_count
    return counts[frequent], places[frequent]


def _whole(store: Store, part: NDArray[Any], low: int, size: int, special: NDArray[Any]) -> NDArray[np.bool_]:
    """The positions in a part of the tokens where an n-gram begins that stays in its sentence and has no special token."""
    count = len(part) - size + 1
    starts = store.sentence_starts
    inner = starts[np.searchsorted(starts, low, "right") : np.searchsorted(starts, low + len(part), "left")] - low
    breaks = np.zeros(len(part) + 1, dtype=np.int64)
    breaks[inner] = 1
    before = np.cumsum(breaks)  # sentences begun up to and with each token
    bad = np.concatenate([[0], np.cumsum(np.isin(part, special))])
    return np.asarray((before[size - 1 : size - 1 + count] == before[:count]) & (bad[size:] == bad[:count]))
