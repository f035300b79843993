"""The source of lines: whole documents or sentences, cut only if too long. For models that ignore the position in a row: static
vectors, windows of words."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.sources.bound import BoundSource, documents_of_running_text, remember, require_tokens
from cloze.corpus.sources.gather import Arrays, Gatherer
from cloze.corpus.sources.plan import Cut, Int64, RowPlan, Split, ranges
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError, text_in
from cloze.registry import register

_FIELDS = ("tokens", "length", "document", "sentence", "word_start", "language")


@register("source", "lines")
class Lines(Source):
    """One document or one sentence per row, cut every `length` tokens.

    length: the maximum length of a row; longer units become several rows.
    unit: what a row is; "document" lets windows of words cross the ends of sentences, as word2vec does within a line of its
      input (Mikolov et al. 2013; MAX_SENTENCE_LENGTH 1000 in word2vec.c, MAX_LINE_SIZE 1024 in fastText).
    shuffle: a new random order of rows in every epoch, else the order of the store.

    No row contains words of two documents.

    Differs: word2vec.c and fastText read files in order, as with `shuffle: false`.
    """

    gives: frozenset[str] = frozenset(_FIELDS)

    def __init__(
        self, *, length: Count = 1000, unit: Literal["document", "sentence"] = "document", shuffle: bool = True
    ) -> None:
        if length < 2:
            raise RecipeError(f"lines.length: {length} tokens; expected 2 or more.")
        if unit not in ("document", "sentence"):
            raise RecipeError(f"lines.unit: {unit!r}; expected document or sentence.")
        self.length = length
        self.unit = unit
        self.shuffle = shuffle
        self.needs_whole = "" if shuffle else "lines keep the order of a whole store"

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundLines:
        """This source over one store. Raises `CorpusError` if no training row has two tokens."""
        return BoundLines(self, store, **address)


class BoundLines(BoundSource[RowPlan[Cut]]):
    """Lines of one store. A plan takes twenty bytes per row; two plans share their `passages`."""

    source: Lines
    layered = ("",)

    def __init__(self, source: Lines, store: Store, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self._start, self._size = self._units(store, documents_of_running_text(store, self.held_out, self.subset))
        if self.subset == "train" and not (self._size >= 2).any():
            raise CorpusError(
                text_in(store.path), f": the corpus is smaller than one example: no {source.unit} has two tokens "
                f"({store.documents:,} documents, {len(store.tokens):,} tokens).\n  Build the store from more text."
            )
        self._gather = Gatherer(store, Split.of(store, np.zeros(0, np.int64), joined=False, separated=False), None)
        self._cuts: OrderedDict[Any, Cut] = OrderedDict()

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus."""
        return int(self._size.sum(dtype=np.int64))

    def make_plan(self, epoch: int, max_tokens: int) -> RowPlan[Cut]:
        """The rows of one epoch."""
        require_tokens("lines", max_tokens, 2, "a row needs 2")
        cuts = remember(self._cuts, min(max_tokens, self.source.length), lambda: self.cuts(max_tokens))
        order = self.shuffled(len(cuts.start), epoch) if self.source.shuffle else np.arange(len(cuts.start))
        return RowPlan(epoch, max_tokens, order, cuts)

    def cuts(self, max_tokens: int) -> Cut:
        """The rows, in the order of the store."""
        return _cut(self._start, self._size, min(max_tokens, self.source.length))

    def arranged(self, epoch: int, max_tokens: int, cuts: Cut, order: Int64) -> RowPlan[Cut]:
        """A plan of the rows of a shard, whose item i is row `order[i]` of these."""
        return RowPlan(epoch, max_tokens, order, cuts)

    def read_main(self, plan: RowPlan[Cut], items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B, L) int32, `length` (B) int32 and `document` (B) int64 always; if wanted, `sentence` (B, L) int32, the
        ordinal of the token's sentence within its row, `word_start` (B, L) bool, `language` (B) int32 and `layers/<name>`
        (B, L) uint8. Values at or beyond `length` are meaningless.
        """
        index = plan.order[items]
        start, length = plan.passages.start[index], plan.passages.length[index]
        sentence, document = self.sentences_of(start)
        arrays = self._gather.spans(start, length.astype(np.int64), sentence, document, want)
        if "language" in want:
            arrays["language"] = self.store.document_languages[document].astype(np.int32)
        return arrays

    def sentences_of(self, start: Int64) -> tuple[Int64, Int64]:
        """The numbers of the sentence and of the document that each of these tokens stands in."""
        sentence = np.searchsorted(self.store.sentence_starts, start, "right") - 1
        return sentence, np.searchsorted(self.store.document_sentences, sentence, "right") - 1

    def _units(self, store: Store, documents: Int64) -> tuple[Int64, NDArray[np.signedinteger]]:
        """First token and size of every document, or sentence, of these documents that has a token."""
        bounds = store.document_starts if self.source.unit == "document" else store.sentence_starts
        start, size = bounds[:-1], np.diff(bounds)
        if size.max(initial=0) < 1 << 31:
            size = size.astype(np.int32)  # half the memory, but a document may be a whole corpus
        mask = size > 0
        if len(documents) < store.documents:
            chosen = np.zeros(store.documents, dtype=np.bool_)
            chosen[documents] = True
            mask &= chosen if self.source.unit == "document" else np.repeat(chosen, np.diff(store.document_sentences))
        return (start, size) if mask.all() else (start[mask], size[mask])


def _cut(start: Int64, size: NDArray[np.signedinteger], longest: int) -> Cut:
    """Units cut every `longest` tokens; the last row of each is shorter."""
    if size.max(initial=0) <= longest:
        return Cut(start, size.astype(np.int32, copy=False))
    pieces = -(-size // longest)
    offset = ranges(pieces) * longest
    left = np.repeat(size, pieces) - offset
    return Cut(np.repeat(start, pieces) + offset, np.minimum(left, longest).astype(np.int32))
