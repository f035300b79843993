"""Plans: where every passage of an epoch starts and stops. Made from sentence lengths in one pass, never from tokens.

A `Split` is the text that passages are cut from: the documents of one part (train or held out) in store order, grouped
into runs, here neighbouring documents, which a passage may not leave. Without `across_documents` every document is a run of its
own.

Two coordinates: *physical* is the flat token index in the store; *linear* counts the tokens of the part and, where a
separator stands between documents, the separators too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.store import Store

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
#: The target lengths (n,) of passages that begin at these tokens (n,) of these documents (n,), as indices into the split.
Targets = Callable[[Int64, Int64], Int64]

_CHUNK = 1 << 20  # sentences turned into Python integers at a time: bounds memory, not results


@dataclass(frozen=True)
class Cut:
    """The rows of an epoch in canonical order, that of the store; N of each array. Shared by all epochs that cut alike."""

    start: Int64            # first token in the store
    length: Int32           # tokens of the row, separators inserted among them


@dataclass(frozen=True)
class Cuts(Cut):
    """The passages of an epoch."""

    stop: Int64             # one past the last token
    document: Int64         # document of the first token
    sentence: Int64         # sentence of the first token
    sentences: Int32        # sentences touched
    lead: NDArray[np.bool_] | None  # the row begins with a separator; None where that cannot be
    target: Int32 | None = None     # tokens that the passage was cut for; None: the room


AnyCut = TypeVar("AnyCut", bound=Cut)


@dataclass(frozen=True)
class Arranged(Generic[AnyCut]):
    """One epoch: rows and their order. Item i of the epoch is row `order[i]` of `passages`."""

    epoch: int
    room: int
    passages: AnyCut
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    @property
    def start(self) -> Int64:
        """First token of every row, canonical order, (N,)."""
        return self.passages.start

    def lengths(self, items: Int64) -> Int32:
        """Row lengths of items of the epoch, before any edit: what packing plans with."""
        return self.passages.length[self.order[items]]


@dataclass(frozen=True)
class Plan(Arranged[Cuts]):
    """One epoch of passages. If languages are drawn at smoothed rates, `repeat` counts the earlier occurrences of each item's
    passage."""

    repeat: Int64 | None = None

    @property
    def stop(self) -> Int64:
        """One past the last token of every passage, canonical order, (N,)."""
        return self.passages.stop

    @property
    def document(self) -> Int64:
        """Document of every passage's first token, canonical order, (N,)."""
        return self.passages.document

    def address(self, items: Int64, static: bool) -> Int64:
        """A number that identifies each item whatever its place in the epoch: the passage and, unless `static`, its repeat."""
        passage = self.order[items]
        return passage if self.repeat is None or static else passage + len(self.passages.start) * self.repeat[items]


@dataclass(frozen=True)
class Split:
    """The documents of one part and the runs they form; K documents, R runs. Empty documents are left out."""

    documents: Int64    # (K,) document numbers in the store, ascending
    start: Int64        # (K,) first token
    stop: Int64         # (K,) one past the last token
    first: Int64        # (K,) first sentence
    last: Int64         # (K,) one past the last sentence
    runs: Int64         # (R + 1,) index into the arrays above of each run's first document, K at the end
    borders: Int64      # (G,) physical start of documents that continue a run, if a separator precedes them

    @classmethod
    def of(cls, store: Store, documents: Int64, *, joined: bool, separated: bool) -> Split:
        """The split of these documents.

        `joined`: neighbours in the store form runs, as long as their language is the same; `separated`: by a separator.
        """
        first, last = store.document_sentences[documents], store.document_sentences[documents + 1]
        full = last > first
        documents, first, last = documents[full], first[full], last[full]
        start, stop = store.sentence_starts[first], store.sentence_starts[last]
        new_run = np.ones(len(documents), dtype=np.bool_)
        if joined:
            new_run[1:] = start[1:] != stop[:-1]
            if store.languages and not store.pairs:
                language = store.document_languages[documents]
                new_run[1:] |= language[1:] != language[:-1]
        runs = np.append(np.flatnonzero(new_run), len(documents))
        return cls(documents, start, stop, first, last, runs, start[~new_run] if separated else start[:0])


def by_sentence(
    store: Store, split: Split, room: int, targets: Targets | None, *, overrun: bool
) -> Cuts:
    """Passages of whole sentences.

    A passage takes sentences until it has at least its target length, which is `room` unless `targets` sets another. With
    `overrun` the sentence that reaches the target is taken whole, so that a passage may have up to twice the room; without it the
    passage stops before that sentence. A sentence longer than the room is cut into pieces of `room`: nothing is dropped.
    """
    units = _units(store, split, room)
    ends = units.linear_end
    cuts: list[int] = []
    stops: list[Int64] = []
    aims: list[Int64] = []
    cursor = 0
    for low in range(0, len(ends), _CHUNK):
        high = min(low + _CHUNK, len(ends))
        begin = ends[low:high] - units.size[low:high]
        target = None if targets is None else targets(units.document[low:high], units.start[low:high])
        goal = begin + (room if target is None else target)
        if overrun:
            reach = np.searchsorted(ends, goal, "left") + 1
        else:
            reach = np.maximum(np.searchsorted(ends, goal, "right"), np.arange(low + 1, high + 1))
        reach = np.minimum(reach, units.run_end[low:high])
        found, cursor = _follow(reach, low, cursor)
        cuts += found
        place = np.array(found, dtype=np.int64) - low
        stops.append(reach[place])
        aims += [] if target is None else [target[place]]
    head = np.array(cuts, dtype=np.int64)
    tail = (np.concatenate(stops) if stops else head) - 1
    length = ends[tail] - ends[head] + units.size[head]
    sentences = units.sentence[tail] - units.sentence[head] + 1
    return Cuts(
        start=units.start[head], stop=units.start[tail] + units.size[tail], length=length.astype(np.int32),
        document=split.documents[units.document[head]], sentence=units.sentence[head],
        sentences=sentences.astype(np.int32), lead=None, target=np.concatenate(aims).astype(np.int32) if aims else None,
    )


def by_length(store: Store, split: Split, room: int) -> Cuts:
    """Passages of exactly `room` tokens, separators counted, wherever that cuts; the last of each run is shorter."""
    first, last = split.runs[:-1], split.runs[1:] - 1
    sizes = split.stop[last] - split.start[first]
    before = np.searchsorted(split.borders, split.start[first])          # separators in earlier runs
    inside = np.searchsorted(split.borders, split.stop[last]) - before   # separators in this run
    pieces = -(-(sizes + inside) // room)
    run = np.repeat(np.arange(len(sizes)), pieces)
    begin = (np.arange(len(run)) - np.repeat(np.cumsum(pieces) - pieces, pieces)) * room
    end = np.minimum(begin + room, (sizes + inside)[run])
    # Within a run, separator g stands in front of borders[g], pushed on by the separators before it.
    offset = split.start[first]
    shift = np.repeat(offset, inside)
    of_run = np.repeat(np.arange(len(sizes)), inside)
    rank = np.arange(len(split.borders)) - np.repeat(before, inside)
    stride = int((sizes + inside).max(initial=0)) + 1
    places = split.borders - shift + rank + of_run * stride  # runs laid out apart, so that one search serves all
    left, right = np.searchsorted(places, begin + run * stride), np.searchsorted(places, end + run * stride)
    padded = np.append(places, -1)
    start, stop = offset[run] + begin - (left - before[run]), offset[run] + end - (right - before[run])
    sentence = np.searchsorted(store.sentence_starts, start, "right") - 1
    final = np.searchsorted(store.sentence_starts, stop, "left") - 1
    return Cuts(
        start=start, stop=stop, length=(end - begin).astype(np.int32),
        document=split.documents[np.searchsorted(split.start, start, "right") - 1],
        sentence=sentence, sentences=(final - sentence + 1).astype(np.int32),
        lead=padded[left] == begin + run * stride if len(places) else None,
    )


def by_each(store: Store, split: Split, room: int) -> Cuts:
    """One sentence per passage; a sentence longer than the room is cut into pieces of `room`."""
    units = _units(store, split, room)
    return Cuts(
        start=units.start, stop=units.start + units.size, length=units.size.astype(np.int32),
        document=split.documents[units.document], sentence=units.sentence,
        sentences=np.ones(len(units.start), dtype=np.int32), lead=None,
    )


@dataclass(frozen=True)
class _Units:
    """Sentences of a split in order, those longer than the room cut into pieces; U of each."""

    start: Int64        # physical
    size: Int64         # tokens
    sentence: Int64     # number in the store
    document: NDArray[np.intp]  # index into the split
    run_end: Int64      # one past the last unit of the run
    linear_end: Int64   # one past the unit's last token, linear


def _units(store: Store, split: Split, room: int) -> _Units:
    counts = split.last - split.first
    document = np.repeat(np.arange(len(counts)), counts)
    sentence = _ranges(split.first, counts)
    start = store.sentence_starts[sentence]
    size = store.sentence_starts[sentence + 1] - start
    pieces = -(-size // room)
    if len(pieces) and pieces.max() > 1:
        nth = _ranges(np.zeros(len(pieces), dtype=np.int64), pieces)
        document, sentence = np.repeat(document, pieces), np.repeat(sentence, pieces)
        start = np.repeat(start, pieces) + nth * room
        size = np.minimum(np.repeat(size, pieces) - nth * room, room)
    opens = np.searchsorted(document, np.arange(len(counts)))  # first unit of each document
    linear_end = np.cumsum(size)
    if len(split.borders):
        ahead = np.searchsorted(split.borders, split.start, "right")  # separators up to each document's start
        linear_end += ahead[document]
    run_sizes = np.diff(np.append(opens[split.runs[:-1]], len(size)))
    run_end = np.repeat(np.cumsum(run_sizes), run_sizes)
    return _Units(start, size, sentence, document, run_end, linear_end)


def _ranges(first: Int64, counts: Int64) -> Int64:
    """first[0], first[0]+1, … counts[0] of them, then first[1], …"""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)


def _follow(reach: Int64, low: int, cursor: int) -> tuple[list[int], int]:
    """Follow the chain cursor → reach[cursor] through the units from `low`; returns the cuts and the last cursor."""
    jumps, high = reach.tolist(), low + len(reach)
    cuts = []
    while cursor < high:
        cuts.append(cursor)
        cursor = jumps[cursor - low]
    return cuts, cursor
