"""The source of term-document counts: a row is a document with its distinct words and how often each occurs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.counting.word_chunks import Unit
from cloze.corpus.sources.passages import running_text
from cloze.corpus.sources.plan import Int64
from cloze.corpus.stores.source import Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.rows import Rows

_BLOCK = 1 << 22  # tokens counted at a time


class Counts(NamedTuple):
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

    def bind(
        self, store: Store, *, seed: int, entry: str, held_out: float = 0.0,
        part: Literal["train", "held_out"] = "train",
    ) -> BoundTermDocuments:
        """This source over one store. Raises `CorpusError` if the training part has no word."""
        return BoundTermDocuments(self, store, seed=seed, entry=entry, held_out=held_out, part=part)


@dataclass(frozen=True)
class DocumentPlan:
    """One epoch: the documents that have words, in random order, and the most words of a row."""

    epoch: int
    room: int
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def lengths(self, items: Int64) -> NDArray[np.int32]:
        """The maximum number of words of a row."""
        return np.full(len(items), self.room, np.int32)


class BoundTermDocuments:
    """A source over one store, seed and entry."""

    def __init__(
        self, source: TermDocuments, store: Store, *, seed: int, entry: str, held_out: float, part: Literal["train", "held_out"]
    ) -> None:
        self.source, self.store, self.seed, self.entry, self.part = source, store, seed, entry, part
        self._roles = np.zeros(store.vocab_size, np.bool_)
        self._roles[list(store.header["roles"].values())] = True
        documents = running_text(store, held_out, part)
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
        if part == "train" and not len(self.start):
            raise CorpusError(f"{store.path}: no {source.unit} of the corpus has a word.\n  Build the store from more text.")

    def _words_before(self) -> Iterator[Int64]:
        """The number of words up to and including each token, block by block."""
        passed = 0
        for low in range(0, len(self.store.tokens), _BLOCK):
            number = passed + np.cumsum(~self._roles[self.store.tokens[low : low + _BLOCK]])
            passed = int(number[-1])
            yield number

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        return self.source.gives

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus."""
        return int((self.stop - self.start).sum())

    def plan(self, epoch: int, room: int) -> DocumentPlan:
        """The documents of one epoch; a pure function of seed, entry and epoch."""
        return DocumentPlan(epoch, room, rng.permutation(len(self.start), self.seed, self.entry, "order", epoch))

    def read(self, plan: DocumentPlan, items: Int64, want: frozenset[str]) -> Rows:
        """`tokens` (B, L) the distinct words of each document, `length` (B,); each word is the target at its own column:
        `targets/main` (B, L) is the word, `positions/main` (B, L) its column, `weights/main` (B, L) float32 its count."""
        chosen = plan.order[items]
        term_counts = self._counts(chosen)
        sizes = np.bincount(term_counts.documents, minlength=len(items))
        column = np.arange(len(term_counts.terms)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        fits = column < plan.room
        length = np.minimum(sizes, plan.room).astype(np.int32)
        width = int(length.max(initial=1))
        at = term_counts.documents[fits], column[fits]
        tokens, counts = np.zeros((len(items), width), np.int32), np.zeros((len(items), width), np.float32)
        tokens[at], counts[at] = term_counts.terms[fits], term_counts.counts[fits]
        columns = np.arange(width, dtype=np.int32)
        positions = np.where(columns < length[:, None], columns, np.int32(-1))
        arrays: dict[str, NDArray[Any]] = {
            "tokens": tokens, "length": length, "document": chosen, "targets/main": tokens, "positions/main": positions,
            "weights/main": counts,
        }
        return Rows(arrays, checked=True)

    def draw(self, plan: DocumentPlan, items: Int64) -> rng.Draw:
        """The random numbers of some items: addressed by seed, entry, epoch and document."""
        return rng.Draw(rng.row_keys(self.seed, self.entry, plan.epoch, items=plan.order[items]))

    def counts(self) -> Counts:
        """The whole matrix: documents are numbered 0, 1, … in the order of the store."""
        sizes = np.cumsum(self.stop - self.start)
        borders = np.searchsorted(sizes, np.arange(0, int(sizes[-1]) if len(sizes) else 0, _BLOCK), "left")
        cuts = np.unique(np.concatenate([[0], borders, [len(sizes)]]))
        parts = []
        for low, high in zip(cuts[:-1], cuts[1:], strict=True):
            part = self._counts(np.arange(low, high))
            parts.append(part._replace(documents=part.documents + low))
        return Counts(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _counts(self, chosen: Int64) -> Counts:
        """The counts of some documents, numbered in the given order; the words of a document are in ascending order."""
        sizes = self.stop[chosen] - self.start[chosen]
        document = np.repeat(np.arange(len(chosen)), sizes)
        index = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(self.start[chosen], sizes)
        tokens: NDArray[Any] = self.store.tokens[index]
        word = ~self._roles[tokens]
        key = document[word] * self.store.vocab_size + tokens[word].astype(np.int64)
        distinct, count = np.unique(key, return_counts=True)
        size = self.store.vocab_size
        return Counts((distinct % size).astype(np.int32), distinct // size, count.astype(np.float32))
