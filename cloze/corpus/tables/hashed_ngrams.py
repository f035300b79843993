"""The table of hashed n-grams that occur in a corpus: only they have a row, as only they are ever trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count, Natural
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import LookUp
from cloze.errors import RecipeError
from cloze.hashed import Bag, Hashing, KeptBuckets, run_buckets
from cloze.registry import register

_CHUNK = 1 << 21  # texts' tokens looked at together


@register("table", "hashed_ngrams")
class HashedNGrams(LookUp):
    """The n-grams of fastText's classifier (Joulin et al., 2017, §2.2): hashed n-grams of words and of characters.

    words: the longest word n-gram; 1: words alone.
    characters: the fewest and the most letters of the n-grams of each word (fastText's -minn and -maxn); null: none.
    buckets: the number of hashes. Different n-grams with one hash share a row.

    Differs: fastText has a row for every bucket and draws it at random. Here a bucket that no n-gram of the corpus falls into
    has none: it counts as a zero in the mean of a text, where fastText adds a random vector of its first length. Memory grows
    with the n-grams of the corpus, not with the buckets.
    """

    def __init__(self, *, words: Count = 1, characters: tuple[int, int] | None = None, buckets: Natural = 2_000_000) -> None:
        if characters is not None and not 1 <= characters[0] <= characters[1]:
            raise RecipeError(
                f"hashed_ngrams.characters: {list(characters)}; expected the fewest and the most letters, such as [3, 6]."
            )
        if buckets < 1 and (words > 1 or characters is not None):
            raise RecipeError(f"hashed_ngrams.buckets: {buckets}; n-grams need at least one. fastText has 2000000.")
        self.hashing = Hashing(words, characters, buckets if words > 1 or characters is not None else 0)

    def bind(self, store: Store) -> KeptBuckets:
        """The buckets of the n-grams of a store's texts, each ended by `[EOS]`."""
        hashing = self.hashing
        used = np.zeros(max(hashing.buckets, 1), np.bool_)
        spellings = store.tokenizer().spellings
        everything = KeptBuckets(hashing, np.arange(hashing.buckets if hashing.characters else 0))
        bag = Bag(spellings, everything)
        if hashing.characters is not None:
            rows = bag.rows[bag.rows >= bag.first]
            used[rows - bag.first] = True
        if hashing.words > 1:
            end = store.header["roles"].get("[EOS]")
            for tokens, owner in _texts(store, end):
                for buckets, _ in run_buckets(bag.hashes[tokens], owner, hashing):
                    used[buckets] = True
        return KeptBuckets(hashing, np.flatnonzero(used))

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> KeptBuckets:
        """The bound table from `KeptBuckets.arrays`. Raises `CorpusError` for any other arrays."""
        return KeptBuckets.restored(arrays)


def _texts(store: Store, end: int | None) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The tokens of some texts after another, ended by `end`, and the number of each one's text, in chunks."""
    starts = np.asarray(store.sentence_starts)
    more = int(end is not None)
    first = 0
    while first < len(starts) - 1:
        last = max(int(np.searchsorted(starts, starts[first] + _CHUNK, "right")) - 1, first + 1)
        sizes = np.diff(starts[first : last + 1]) + more
        owner = np.repeat(np.arange(len(sizes)), sizes)
        tokens = np.empty(len(owner), np.int64)
        ends = np.cumsum(sizes) - 1
        inner = np.ones(len(owner), np.bool_)
        if end is not None:
            inner[ends] = False
            tokens[ends] = end
        tokens[inner] = store.tokens[starts[first] : starts[last]]
        yield tokens, owner
        first = last
