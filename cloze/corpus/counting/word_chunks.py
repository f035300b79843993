"""The words of a store without special tokens, in chunks that record how far each word may look back; for counting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.sources.plan import Int64
from cloze.corpus.stores.store import Store

Unit = Literal["document", "sentence"]


@dataclass(frozen=True)
class WordChunk:
    """A chunk of words in a row: `ids` (N,), `left` (N,) how many of the words before each are of its own unit, at most the
    radius. The first `new` words are there only to be looked back at."""

    ids: NDArray[np.int32]
    left: NDArray[np.int32]
    new: int


def chunks(store: Store, documents: Int64, *, unit: Unit, radius: int, chunk: int = 1 << 20) -> Iterator[WordChunk]:
    """The words of these documents (ascending numbers). Special tokens, including [UNK], are removed and leave no gap."""
    roles = np.zeros(store.vocab_size, np.bool_)
    roles[list(store.header["roles"].values())] = True
    starts = store.document_starts if unit == "document" else store.sentence_starts
    for first, last in _ranges(store, documents):
        tail = np.zeros(0, np.int32)
        reach = 0  # words of the unit that the chunk begins in, before it
        for low in range(first, last, chunk):
            tokens = store.tokens[low : min(low + chunk, last)]
            is_word = ~roles[tokens]
            number = np.cumsum(is_word)  # words up to each token, itself included
            begins = starts[np.searchsorted(starts, low) : np.searchsorted(starts, low + len(tokens))] - low
            before = np.zeros(len(tokens), np.int64)
            before[begins] = np.where(begins > 0, number[begins - 1], 0)
            if len(begins):
                before = np.maximum.accumulate(before)
                offset = number - 1 - before
                offset[: begins[0]] += reach
            else:
                offset = number - 1 + reach
            ids, back = tokens[is_word].astype(np.int32), np.minimum(offset[is_word], radius).astype(np.int32)
            yield WordChunk(np.concatenate([tail, ids]), np.concatenate([np.zeros(len(tail), np.int32), back]), len(tail))
            reach = int(offset[-1]) + 1
            tail = np.concatenate([tail, ids])[-radius:]


def _ranges(store: Store, documents: Int64) -> list[tuple[Any, Any]]:
    """First token and end of each run of adjacent documents."""
    if not len(documents):
        return []
    breaks = np.flatnonzero(np.diff(documents) != 1) + 1
    bounds = store.document_starts
    firsts, lasts = documents[np.append(0, breaks)], documents[np.append(breaks - 1, len(documents) - 1)]
    return [(int(bounds[f]), int(bounds[e + 1])) for f, e in zip(firsts, lasts, strict=True)]


def number_of_words(store: Store, documents: Int64) -> int:
    """The number of words of these documents, without special tokens."""
    roles = np.array(list(store.header["roles"].values()), np.int64)
    total = 0
    for first, last in _ranges(store, documents):
        for low in range(first, last, 1 << 22):
            part = store.tokens[low : min(low + (1 << 22), last)]
            total += len(part) - int(np.isin(part, roles).sum())
    return total
