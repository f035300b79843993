"""Single sentences of a store, with their neighbours as companions, and in groups of equal length."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.corpus.sources.gather import Gatherer
from cloze.corpus.sources.passages import remember, running_text
from cloze.corpus.sources.plan import Cuts, Int64, Plan, Split
from cloze.corpus.stores.source import Rebinds
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.rows import Rows

Companion = Literal["next", "previous"]
_FIELDS = ("tokens", "length", "document", "sentence", "word_start")


class OneByOne(Protocol):
    """What `BoundSingle` needs from its source, `Sentences`."""

    max_length: int | None
    companions: tuple[Companion, ...]
    across_documents: bool
    bucket: Literal["equal_length"] | None
    static: bool


def fields_of(companions: tuple[Companion, ...]) -> frozenset[str]:
    """The fields of rows: of the sentence, of its language if the store knows it, and of its companions."""
    return frozenset({*_FIELDS, "language", *(f"{view}.{name}" for view in companions for name in _FIELDS)})


@dataclass(frozen=True)
class _Sentences:
    """The sentences that make up rows, in the order of the store; N of each."""

    number: Int64       # in the store
    document: Int64


class BoundSingle(Rebinds):
    """A source of single sentences over one store, seed and entry, in steps of `batch` rows.

    Unlike passages it omits sentences that do not fit: a sentence is never cut.
    """

    def __init__(
        self, source: OneByOne, store: Store, *, seed: int, entry: str, held_out: float,
        part: Literal["train", "held_out"], batch: int,
    ) -> None:
        self.source, self.store, self.seed, self.entry, self.part = source, store, seed, entry, part
        self.batch = batch
        documents = running_text(store, held_out, part)
        self.split = Split.of(store, documents, joined=source.across_documents, separated=False)
        self._gather = Gatherer(store, self.split, None)
        self._all = self._with_neighbours()
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._cuts: OrderedDict[Any, Cuts] = OrderedDict()
        if part == "train" and not len(self._all.number):
            companions = " and ".join(source.companions) or "no"
            raise CorpusError(
                f"{store.path}: no sentence has the companions asked for ({companions}): {store.sentences:,} sentences in "
                f"{store.documents:,} documents.\n  Give documents of several sentences, or write across_documents: true."
            )

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        views = ("", *(f"{view}." for view in self.source.companions))
        layers = {f"{view}{name}" for name in self.store.aligned for view in views}
        return (fields_of(self.source.companions) | layers) - (set() if self.store.languages else {"language"})

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus, including sentences that are left out."""
        return int((self.split.stop - self.split.start).sum())

    def plan(self, epoch: int, room: int) -> Plan:
        """The sentences of one epoch with room for `room` tokens each; a pure function of seed, entry, epoch and room.

        Raises `CorpusError` if every training sentence is too long.
        """
        max_length = self._longest(room)

        def make() -> Plan:
            cut = remember(self._cuts, max_length, lambda: self._fitting(max_length))
            count = len(cut.start)
            if self.source.bucket is None:
                return Plan(epoch, room, cut, rng.permutation(count, self.seed, self.entry, "order", epoch))
            return Plan(epoch, room, cut, self._in_groups(cut.length, epoch))

        return remember(self._plans, (epoch, room), make)

    def cuts(self, room: int) -> Cuts:
        """The sentences of a shard that fit."""
        return self._fitting(self._longest(room))

    def arranged(self, epoch: int, room: int, cuts: Cuts, order: Int64) -> Plan:
        """A plan whose item i is sentence `order[i]` of these."""
        return Plan(epoch, room, cuts, order)

    def _longest(self, room: int) -> int:
        if room < 1:
            raise RecipeError(f"sentences: {room} tokens of room per row; expected 1 or more (is `length` too small?).")
        return room if self.source.max_length is None else min(room, self.source.max_length)

    def read(self, plan: Plan, items: Int64, want: frozenset[str]) -> Rows:
        """The rows of some items (B positions in the plan's order).

        `tokens` (B, L), `length` and `document` (B) always; `word_start` (B, L), `sentence` (B, L; 0), `language` (B) and
        `layers/<name>` (B, L) if wanted; and the same fields of the previous and the next sentence, under `previous.` and
        `next.`.
        """
        index = plan.order[items]
        sentence = plan.passages.sentence[index]
        arrays = self._sentences(sentence, want)
        if "language" in want:
            arrays["language"] = self.store.document_languages[arrays["document"]].astype(np.int32)
        for view in self.source.companions:
            names = frozenset(name.removeprefix(f"{view}.") for name in want if name.startswith(f"{view}."))
            if names:
                companion_arrays = self._sentences(sentence + (1 if view == "next" else -1), names)
                arrays.update({f"{view}.{name}": value for name, value in companion_arrays.items()})
        return Rows(arrays, checked=True)

    def draw(self, plan: Plan, items: Int64) -> rng.Draw:
        """The random numbers of some items: by seed, entry, epoch (0 if static) and row."""
        epoch = 0 if self.source.static else plan.epoch
        return rng.Draw(rng.row_keys(self.seed, self.entry, epoch, items=plan.order[items]))

    def _sentences(self, sentence: Int64, want: frozenset[str]) -> dict[str, NDArray[Any]]:
        start = self.store.sentence_starts[sentence]
        length = self.store.sentence_starts[sentence + 1] - start
        document = np.searchsorted(self.store.document_sentences, sentence, "right") - 1
        return self._gather.spans(start, length, sentence, document, want)

    def _with_neighbours(self) -> _Sentences:
        """The sentences that have every companion within their run of documents."""
        split = self.split
        first, last = split.first[split.runs[:-1]], split.last[split.runs[1:] - 1]
        first = first + ("previous" in self.source.companions)
        counts = np.maximum(last - ("next" in self.source.companions) - first, 0)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        number = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)
        return _Sentences(number, np.searchsorted(self.store.document_sentences, number, "right") - 1)

    def _fitting(self, max_length: int) -> Cuts:
        """Rows whose sentence and companions all have at most `max_length` tokens."""
        sizes = np.diff(self.store.sentence_starts)
        number = self._all.number
        fits = sizes[number] <= max_length
        for view in self.source.companions:
            fits &= sizes[number + (1 if view == "next" else -1)] <= max_length
        if self.part == "train" and not fits.any():
            raise CorpusError(
                f"{self.store.path}: none of {len(number):,} sentences fits with its companions in {max_length} tokens; the "
                f"shortest has {int(sizes[number].min())}.\n  Raise sentences.length or sentences.max_length."
            )
        number, start = number[fits], self.store.sentence_starts[number[fits]]
        length = sizes[number]
        return Cuts(
            start=start, stop=start + length, length=length.astype(np.int32), document=self._all.document[fits],
            sentence=number, sentences=np.ones(len(number), dtype=np.int32), lead=None,
        )

    def _in_groups(self, length: NDArray[np.int32], epoch: int) -> Int64:
        """Rows in groups of `batch` of equal length, the groups in random order.

        The remainders of all lengths form the last groups, sorted by length, so that nothing is left out.
        """
        mixed = rng.permutation(len(length), self.seed, self.entry, "order", epoch)
        by_length = mixed[np.argsort(length[mixed], kind="stable")]
        _, counts = np.unique(length, return_counts=True)
        rank = np.arange(len(length)) - np.repeat(np.cumsum(counts) - counts, counts)
        whole = rank < np.repeat(counts - counts % self.batch, counts)
        groups = by_length[whole].reshape(-1, self.batch)
        shuffled = groups[rng.permutation(len(groups), self.seed, self.entry, "groups", epoch)]
        return np.concatenate([shuffled.reshape(-1), by_length[~whole]])
