"""Running text from pairs of translations: every second sentence is in the other language."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple, Unpack

import numpy as np

from cloze import rng
from cloze.corpus.sources.bound import BoundSource, remember, require_tokens, split_documents
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64, PassageCuts, RowPlan, ranges
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store

#: The fields of the source when it alternates; `inputs/language` is the language of each token.
ALTERNATING = frozenset({"tokens", "length", "document", "sentence", "word_start", "inputs/language"})


class _Shown(NamedTuple):
    """The sentences that an epoch shows, in order; S per array."""

    start: Int64     # first token in the store
    ends: Int64      # one past the last token, counted over the shown sentences
    language: Int64
    opens: Int64     # (R,) the sentence with which each run begins


class BoundAlternating(BoundSource[RowPlan[PassageCuts]]):
    """Pairs of one store as documents whose even sentences are replaced by their translations (cross-lingual masked
    language modelling of Unicoder, Huang et al., 2019), cut into rows.

    A document is a run of consecutive pairs in the same two languages, without held-out pairs; parallel text has no other
    document boundaries. With `swap` the first side is redrawn for every run and epoch. A row gives the language of each token
    as `inputs/language`. Starts of rows count the tokens that the epoch shows.
    """

    layered = ("",)

    def __init__(self, source: Source, store: Store, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.documents = split_documents(store.documents, self.held_out)[self.subset]
        self._epochs: OrderedDict[Any, _Shown] = OrderedDict()

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus, both sides."""
        bounds = self.store.document_starts
        return int((bounds[self.documents + 1] - bounds[self.documents]).sum())

    def read_main(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """Always `tokens` and `inputs/language` (B, L), `length` (B) and `document` (B), the document of the first token; if
        wanted, `word_start`, `sentence` (its ordinal in the row) and `layers/<name>` (B, L)."""
        row, sentences = plan.order[items], self._shown(plan.epoch)
        length = plan.lengths(items)
        columns = np.minimum(np.arange(int(length.max(initial=1))), length[:, None] - 1)
        position = plan.start[row][:, None] + columns
        sentence = np.searchsorted(sentences.ends, position, "right")
        physical = (sentences.start - sentences.ends + np.diff(sentences.ends, prepend=0))[sentence] + position
        arrays: Arrays = {
            "tokens": self.store.tokens[physical].astype(np.int32), "length": length, "document": plan.passages.document[row],
            "inputs/language": sentences.language[sentence].astype(np.int32),
        }
        if "word_start" in want:
            arrays["word_start"] = self.store.words(physical)
        if "sentence" in want:
            arrays["sentence"] = (sentence - sentence[:, :1]).astype(np.int32)
        arrays |= {name: layer[physical] for name, layer in self.store.aligned.items() if name in want}
        return arrays

    def make_plan(self, epoch: int, max_tokens: int) -> RowPlan[PassageCuts]:
        """The rows of one epoch."""
        require_tokens("pairs", max_tokens, 2, "expected 2 or more")
        sentences = self._shown(epoch)
        starts = np.append(0, sentences.ends)[sentences.opens]
        stops = np.append(starts[1:], sentences.ends[-1:])
        pieces = -(-(stops - starts) // max_tokens)
        start = np.repeat(starts, pieces) + ranges(pieces) * max_tokens
        stop = np.minimum(np.repeat(stops, pieces), start + max_tokens)
        first, last = (np.searchsorted(sentences.ends, position, "right") for position in (start, stop - 1))
        cuts = PassageCuts(
            start=start, stop=stop, length=(stop - start).astype(np.int32), document=self.documents[first], sentence=first,
            sentences=(last - first + 1).astype(np.int32), separator_first=None,
        )
        sides = np.sort(self._sides[sentences.opens], axis=1)
        return self.shuffled_plan(epoch, max_tokens, cuts, lambda: np.repeat(256 * sides[:, 0] + sides[:, 1], pieces))

    @property
    def _sides(self) -> Int64:
        """(K, 2) the languages of each pair."""
        return self.store.document_languages[self.documents].astype(np.int64)

    def _shown(self, epoch: int) -> _Shown:
        return remember(self._epochs, epoch, lambda: self._choose(epoch))

    def _choose(self, epoch: int) -> _Shown:
        """One sentence of each pair: the first and the second alternate, starting with the first side of the run."""
        sides = self._sides
        new_run = np.append(True, (sides[1:] != sides[:-1]).any(axis=1))[: len(sides)]
        opens, run = np.flatnonzero(new_run), np.cumsum(new_run) - 1
        side = (np.arange(len(sides)) - opens[run] + self._first(len(opens), epoch)[run]) % 2
        sentence = self.store.document_sentences[self.documents] + side
        start = self.store.sentence_starts[sentence]
        ends = np.cumsum(self.store.sentence_starts[sentence + 1] - start)
        return _Shown(start, ends, sides[np.arange(len(sides)), side], opens)

    def _first(self, runs: int, epoch: int) -> Int64:
        """The first side of each run."""
        if not self.source.swap:
            return np.zeros(runs, dtype=np.int64)
        keys = rng.row_keys(self.seed, self.entry, 0 if self.source.static else epoch, "alternate", items=np.arange(runs))
        return (rng.Draw(keys).uniform("pairs/swap") < 0.5).astype(np.int64)
