"""The source of term-document counts: a row is a document with its distinct words and how often each occurs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.counting.word_chunks import Unit
from cloze.corpus.sources.bound import BoundSource, documents_of_running_text
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64, Ordering, ranges
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register

_BLOCK = 1 << 22  # tokens counted at a time


class TermDocumentCounts(NamedTuple):
    """The non-zero cells of the term-document matrix, document by document; N per array."""

    terms: NDArray[np.int32]
    documents: NDArray[np.int64]
    counts: NDArray[np.float32]


@register("source", "term_documents")
class TermDocuments(Source):
    """The number of times that every word occurs in every document (Deerwester et al., 1990), or in every sentence (`unit`).

    A row has the distinct words of its document, those most frequent in the corpus first, at most `length` of them, without
    special tokens and [UNK]. Documents without words are left out. `weights/main` are the counts. Differs: the engine `svd`
    reads the whole matrix, in which no row is cut.
    """

    gives = frozenset({"tokens", "length", "document", "targets/main", "positions/main", "weights/main"})

    def __init__(self, *, unit: Unit = "document", length: Count | None = 512) -> None:
        if unit not in ("document", "sentence"):
            raise RecipeError(f"term_documents.unit: {unit!r}; expected document or sentence.")
        self.unit, self.length = unit, length

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundTermDocuments:
        """This source over one store. Raises `CorpusError` if the training part has no word."""
        return BoundTermDocuments(self, store, **address)


class BoundTermDocuments(BoundSource[Ordering]):
    """The documents of one store that have words."""

    source: TermDocuments

    def __init__(self, source: TermDocuments, store: Store, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self._roles = np.zeros(store.vocab_size, np.bool_)
        self._roles[list(store.header["roles"].values())] = True
        documents = documents_of_running_text(store, self.held_out, self.subset)
        if source.unit == "document":
            bounds = store.document_starts
            start, stop = bounds[documents], bounds[documents + 1]
        else:
            counts = np.diff(store.document_sentences)
            inside = np.zeros(store.documents, np.bool_)
            inside[documents] = True
            chosen = np.flatnonzero(np.repeat(inside, counts))
            start, stop = store.sentence_starts[chosen], store.sentence_starts[chosen + 1]
        words = np.concatenate([np.zeros(1, np.int64), *self._words_before()])
        full = words[stop] > words[start] if len(start) else np.zeros(0, np.bool_)
        self.start, self.stop = start[full], stop[full]
        if self.subset == "train" and not len(self.start):
            raise CorpusError(f"{store.path}: no {source.unit} of the corpus has a word.\n  Build the store from more text.")

    def _words_before(self) -> Iterator[Int64]:
        """The number of words up to and including each token, block by block."""
        passed = 0
        for low in range(0, len(self.store.tokens), _BLOCK):
            number = passed + np.cumsum(~self._roles[self.store.tokens[low : low + _BLOCK]])
            passed = int(number[-1])
            yield number

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus."""
        return int((self.stop - self.start).sum())

    def make_plan(self, epoch: int, max_tokens: int) -> Ordering:
        """The documents of one epoch, in random order."""
        return Ordering(epoch, max_tokens, self.shuffled(len(self.start), epoch))

    def read_main(self, plan: Ordering, items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B, L) the distinct words of each document, `length` (B,); each word is the target at its own column:
        `targets/main` (B, L) is the word, `positions/main` (B, L) its column, `weights/main` (B, L) float32 its count."""
        chosen = plan.order[items]
        term_counts = self._counts(chosen)
        sizes = np.bincount(term_counts.documents, minlength=len(items))
        column = ranges(sizes)
        fits = column < plan.max_tokens
        length = np.minimum(sizes, plan.max_tokens).astype(np.int32)
        width = int(length.max(initial=1))
        at = term_counts.documents[fits], column[fits]
        tokens, counts = np.zeros((len(items), width), np.int32), np.zeros((len(items), width), np.float32)
        tokens[at], counts[at] = term_counts.terms[fits], term_counts.counts[fits]
        columns = np.arange(width, dtype=np.int32)
        positions = np.where(columns < length[:, None], columns, np.int32(-1))
        return {
            "tokens": tokens, "length": length, "document": chosen, "targets/main": tokens, "positions/main": positions,
            "weights/main": counts,
        }

    def counts(self) -> TermDocumentCounts:
        """The whole matrix: documents are numbered 0, 1, … in the order of the store."""
        sizes = np.cumsum(self.stop - self.start)
        borders = np.searchsorted(sizes, np.arange(0, int(sizes[-1]) if len(sizes) else 0, _BLOCK), "left")
        cuts = np.unique(np.concatenate([[0], borders, [len(sizes)]]))
        parts = []
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            part = self._counts(np.arange(low, high))
            parts.append(part._replace(documents=part.documents + low))
        return TermDocumentCounts(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _counts(self, chosen: Int64) -> TermDocumentCounts:
        """The counts of some documents, numbered in the given order; the words of a document are in ascending order."""
        sizes = self.stop[chosen] - self.start[chosen]
        document = np.repeat(np.arange(len(chosen)), sizes)
        tokens: NDArray[Any] = self.store.tokens[ranges(sizes, self.start[chosen])]
        word = ~self._roles[tokens]
        key = document[word] * self.store.vocab_size + tokens[word].astype(np.int64)
        distinct, count = np.unique(key, return_counts=True)
        size = self.store.vocab_size
        return TermDocumentCounts((distinct % size).astype(np.int32), distinct // size, count.astype(np.float32))
