"""Plans: where every passage of an epoch starts and stops. Made from sentence lengths in one pass, never from tokens.

A `Split` is the text that passages are cut from: the documents of one part (train or held out) in store order, grouped
into runs of neighbouring documents; a passage stays within one run. Without `across_documents` every document is a run.

Two coordinates: *physical* is the flat token index in the store; *linear* counts the tokens of the part and, where a
separator stands between documents, the separators too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.store import Store

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
#: The target lengths (n,) of passages that begin at these tokens (n,) of these documents (n,), as indices into the split.
TargetLengths = Callable[[Int64, Int64], Int64]

#: From the first tokens (n,) and the numbers of sentences (n,) of passages: at which sentence the second part begins, and whether
#: another text replaces that part, which then begins the next passage.
PutBack = Callable[[Int64, Int64], tuple[Int64, NDArray[np.bool_]]]

_FEW = 16  # runs that are followed one by one
_CHUNK = 1 << 16  # sentences laid out, or rows cut, at a time: bounds memory, not results


@dataclass(frozen=True)
class Cut:
    """The rows of an epoch in canonical order, that of the store; N of each array. Shared by all epochs that cut alike."""

    start: Int64            # first token in the store
    length: Int32           # tokens of the row, separators inserted among them


@dataclass(frozen=True)
class PassageCuts(Cut):
    """The passages of an epoch."""

    stop: Int64             # one past the last token
    document: Int64         # document of the first token
    sentence: Int64         # sentence of the first token
    sentences: Int32        # sentences touched
    separator_first: NDArray[np.bool_] | None  # the row begins with a separator; None where that cannot be
    target: Int32 | None = None     # tokens that the passage was cut for; None: `max_tokens`
    border: Int32 | None = None     # the sentence, from 0, that the second part starts with; None: the source plans no parts
    apart: NDArray[np.bool_] | None = None  # whether other text replaces the second part, which then starts the next passage


AnyCut = TypeVar("AnyCut", bound=Cut)


@dataclass(frozen=True)
class Ordering:
    """One epoch of units: item i is unit `order[i]`."""

    epoch: int
    max_tokens: int
    order: Int64

    def __len__(self) -> int:
        return len(self.order)

    def address(self, items: Int64, static: bool) -> Int64:
        """A number that identifies each item whatever its place in the epoch: its unit."""
        return self.order[items]


@dataclass(frozen=True)
class RowPlan(Ordering, Generic[AnyCut]):
    """One epoch of rows: item i is row `order[i]` of `passages`. If languages are drawn at smoothed rates, `repeat`
    counts the earlier occurrences of each item's row."""

    passages: AnyCut
    repeat: Int64 | None = None

    @property
    def start(self) -> Int64:
        """First token of every row, canonical order, (N,)."""
        return self.passages.start

    def lengths(self, items: Int64) -> Int32:
        """Row lengths of items of the epoch, before any edit."""
        return self.passages.length[self.order[items]]

    def address(self, items: Int64, static: bool) -> Int64:
        """The row of each item and, unless `static`, which repeat of it this is."""
        row = self.order[items]
        return row if self.repeat is None or static else row + len(self.passages.start) * self.repeat[items]


@dataclass(frozen=True)
class Packed:
    """Rows of several members each: row i has `members[starts[i]:starts[i + 1]]`."""

    starts: Int64               # (R + 1,)
    members: NDArray[np.integer]  # (N,)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def members_of(self, rows: Int64) -> tuple[Int64, Int64]:
        """The members of some rows, row after row, and the place in `rows` of the row of each."""
        first = self.starts[rows]
        counts = self.starts[rows + 1] - first
        return self.members[ranges(counts, first)].astype(np.int64), np.repeat(np.arange(len(rows)), counts)


@dataclass(frozen=True)
class Split:
    """The documents of one part and the runs they form; K documents, R runs. Empty documents are left out."""

    documents: Int64    # (K,) document numbers in the store, ascending
    start: Int64        # (K,) first token
    stop: Int64         # (K,) one past the last token
    first: Int64        # (K,) first sentence
    last: Int64         # (K,) one past the last sentence
    runs: Int64         # (R + 1,) index into the arrays above of each run's first document, K at the end
    separator_starts: Int64  # (G,) physical start of documents that continue a run, if a separator precedes them

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


def cut_by_sentence(
    store: Store, split: Split, max_tokens: int, targets: TargetLengths | None, *, overrun: bool, put_back: PutBack | None = None
) -> PassageCuts:
    """Passages of whole sentences.

    A passage takes sentences until it has at least its target length, which is `max_tokens` unless `targets` sets another. With
    `overrun` the sentence that reaches the target is taken whole, so that a passage may have up to twice as many; without it the
    passage stops before that sentence. A sentence longer than that is cut into pieces: nothing is dropped. After a
    passage whose second part is put back, the next one begins with that part.
    """
    # Shapes in a chunk: U units, P passages. `ends` and `begin` (U,) are linear. `head` and `tail` (P,)
    # are the first and the last unit of each passage, `stop` is one past `tail`; `border`, `apart` (P,).
    passages, layout = _CutColumns(), _Layout.of(store, split, max_tokens)
    position, piece, size = 0, 0, _CHUNK  # the next sentence of the split, and how many of its pieces are in passages
    while position < layout.sentences:
        units = layout.units(position, min(position + size, layout.sentences), piece)
        ends = units.linear_end
        begin = ends - units.size
        head, stop = _follow(units, max_tokens, targets, overrun=overrun, put_back=put_back)
        if units.open:  # passages up to the end may take sentences that are not laid out yet: the first opens the next chunk
            # Stops need not ascend: a part that is put back may begin a short passage.
            complete_count = int(np.argmax(stop == len(ends)))
            if not complete_count:
                size *= 2
                continue
            position, piece = units.place(int(head[complete_count]))
            head, stop = head[:complete_count], stop[:complete_count]
        else:
            position, piece = position + size, 0
        tail = stop - 1
        border, apart = (None, None) if put_back is None else put_back(units.start[head], stop - head)
        passages.add(
            start=units.start[head], stop=units.start[tail] + units.size[tail],
            length=(ends[tail] - begin[head]).astype(np.int32), document=split.documents[units.document[head]],
            sentence=units.sentence[head], sentences=(units.sentence[tail] - units.sentence[head] + 1).astype(np.int32),
            target=None if targets is None else targets(units.document[head], units.start[head]).astype(np.int32),
            border=None if border is None else border.astype(np.int32), apart=apart,
        )
    return passages.cuts()


def cut_by_length(store: Store, split: Split, max_tokens: int) -> PassageCuts:
    """Passages of exactly `max_tokens` tokens, separators counted, wherever that cuts; the last of each run is shorter.

    One run of documents of 5, 3 and 4 tokens with separators, in rows of 6:

        linear       0  1  2  3  4  5   6  7  8  9 10 11  12 13
        token        0  1  2  3  4  |   5  6  7  |  8  9  10 11
        passages    [0               ] [6               ] [12  ]
        borders      5, 8      the first tokens of the later documents, physical
        places       5, 9      the separators in front of them, linear

    The second passage has one separator before it and one in it: it starts at token 6 - 1 and stops at token 12 - 2.
    """
    # Shapes: R runs, G borders. By run (R,): `first` and `last` document, `sizes` in tokens, `before`,
    # `inside`, `offset`. By border (G,): `shift`, `of_run`, `rank`, `places`. In the loop: by row (C,).
    first, last = split.runs[:-1], split.runs[1:] - 1
    sizes = split.stop[last] - split.start[first]
    before = np.searchsorted(split.separator_starts, split.start[first])          # separators in earlier runs
    inside = np.searchsorted(split.separator_starts, split.stop[last]) - before   # separators in this run
    offset = split.start[first]
    # Within a run, separator g stands in front of borders[g], pushed on by the separators before it.
    shift = np.repeat(offset, inside)
    of_run = np.repeat(np.arange(len(sizes)), inside)
    rank = np.arange(len(split.separator_starts)) - np.repeat(before, inside)
    stride = int((sizes + inside).max(initial=0)) + 1
    places = split.separator_starts - shift + rank + of_run * stride  # runs laid out apart, so that one search serves all
    padded = np.append(places, -1)  # (G + 1,): past the last border stands -1, no place
    # (R + 1,): the first row of each run, and the number of rows at the end.
    rows = np.concatenate([[0], np.cumsum(-(-(sizes + inside) // max_tokens))]).astype(np.int64)
    passages = _CutColumns()
    for low in range(0, int(rows[-1]), _CHUNK):
        row = np.arange(low, min(low + _CHUNK, int(rows[-1])))
        run = np.searchsorted(rows, row, "right") - 1
        begin = (row - rows[run]) * max_tokens  # `begin`, `end`: linear, from the start of the run
        end = np.minimum(begin + max_tokens, (sizes + inside)[run])
        # Borders in front of each row's begin and end, those of earlier runs included.
        left, right = np.searchsorted(places, begin + run * stride), np.searchsorted(places, end + run * stride)
        start, stop = offset[run] + begin - (left - before[run]), offset[run] + end - (right - before[run])
        sentence = np.searchsorted(store.sentence_starts, start, "right") - 1
        final = np.searchsorted(store.sentence_starts, stop, "left") - 1
        passages.add(
            start=start, stop=stop, length=(end - begin).astype(np.int32),
            document=split.documents[np.searchsorted(split.start, start, "right") - 1],
            sentence=sentence, sentences=(final - sentence + 1).astype(np.int32),
            separator_first=padded[left] == begin + run * stride if len(places) else None,
        )
    return passages.cuts()


def cut_each_sentence(store: Store, split: Split, max_tokens: int) -> PassageCuts:
    """One sentence per passage; a sentence longer than `max_tokens` is cut into pieces."""
    passages, layout = _CutColumns(), _Layout.of(store, split, max_tokens)
    for low in range(0, layout.sentences, _CHUNK):
        units = layout.units(low, min(low + _CHUNK, layout.sentences), 0)
        passages.add(
            start=units.start, stop=units.start + units.size, length=units.size.astype(np.int32),
            document=split.documents[units.document], sentence=units.sentence,
            sentences=np.ones(len(units.start), dtype=np.int32),
        )
    return passages.cuts()


class _CutColumns:
    """The columns of `PassageCuts`, chunk by chunk."""

    def __init__(self) -> None:
        none, few = np.zeros(0, np.int64), np.zeros(0, np.int32)
        self._columns: dict[str, list[NDArray[Any]]] = {
            "start": [none], "stop": [none], "length": [few], "document": [none], "sentence": [none], "sentences": [few],
        }

    def add(self, **columns: NDArray[Any] | None) -> None:
        for name, column in columns.items():
            if column is not None:
                self._columns.setdefault(name, []).append(column)

    def cuts(self) -> PassageCuts:
        """The columns as a whole; the chunks of each are freed as it is made, so that no more than one exists twice."""
        columns = {name: np.concatenate(self._columns.pop(name)) for name in list(self._columns)}
        return PassageCuts(
            start=columns["start"], length=columns["length"], stop=columns["stop"], document=columns["document"],
            sentence=columns["sentence"], sentences=columns["sentences"],
            separator_first=columns.get("separator_first"), target=columns.get("target"),
            border=columns.get("border"), apart=columns.get("apart"),
        )


@dataclass(frozen=True)
class _Units:
    """Consecutive sentences of a split, those longer than `max_tokens` cut into pieces; U of each array.

    Two runs, of sentences of 3, 4, 5, 2 and of 10, 6 tokens, in rows of 8; the sentence of 10 is two units:

        sentence         0    1    2    3  |  4    4    5
        unit             0    1    2    3  |  4    5    6
        size             3    4    5    2  |  8    2    6
        linear_end       3    7   12   14  | 22   24   30
        run_end          4    4    4    4  |  7    7    7
        reach            2    2    4    4  |  5    7    7
        passages        [0    1] [2     3] | [4]  [5    6]

    `reach` is one past the last unit of a passage that begins here (`_follow`), without overrun. Where a
    separator stands between documents, `linear_end` counts it from the unit after it on.
    """

    start: Int64        # physical
    size: Int64         # tokens
    sentence: Int64     # number in the store
    document: Int64     # index into the split
    run_end: Int64      # one past the last of these units that the run has
    linear_end: Int64   # one past the unit's last token, linear, counted from somewhere
    first_unit: Int64   # (sentences,) the first unit of every sentence; may be negative for the first
    first: int          # the first sentence, counted in the split
    open: bool          # the last run goes on after these sentences

    def place(self, unit: int) -> tuple[int, int]:
        """The sentence of a unit, counted in the split, and its piece of it."""
        sentence = int(np.searchsorted(self.first_unit, unit, "right")) - 1
        return self.first + sentence, unit - int(self.first_unit[sentence])


@dataclass(frozen=True)
class _Layout:
    """The sentences of a split, which `units` lays out a chunk at a time: a passage never needs more than its neighbourhood."""

    store: Store
    split: Split
    max_tokens: int
    before: Int64       # (K + 1,) sentences before each document, and all of them

    @classmethod
    def of(cls, store: Store, split: Split, max_tokens: int) -> _Layout:
        return cls(store, split, max_tokens, np.concatenate([[0], np.cumsum(split.last - split.first)]).astype(np.int64))

    @property
    def sentences(self) -> int:
        """Sentences of the split."""
        return int(self.before[-1])

    def units(self, low: int, high: int, skip: int) -> _Units:
        """The units of the sentences `low` … `high` - 1 of the split, without the first `skip` pieces.

        In the example of `_Units`, once the first piece of sentence 4 is in a passage, `units(4, 6, 1)` lays out

            sentence        4       5      (S,)
            pieces          2       1      (S,)
            begin          -1       1      (S,)  the unit with which the sentence begins
            unit        (-1)  0     1      (U,)
            size          8   2     6      (U,)
            run_end           2     2      (U,)
        """
        # Shapes: D documents, from `from_` to `to` - 1, S sentences, U units. `inside` (D + 1,), `counts` (D,),
        # `pieces` and `begin` (S,); `document`, `sentence`, `start` and `size` are (S,) first, then (U,).
        split, starts = self.split, self.store.sentence_starts
        from_, to = int(np.searchsorted(self.before, low, "right")) - 1, int(np.searchsorted(self.before, high, "left"))
        inside = np.clip(self.before[from_ : to + 1], low, high)  # borders of the documents among these sentences
        counts = np.diff(inside)
        document = np.repeat(np.arange(from_, to), counts)
        sentence = ranges(counts, split.first[from_:to] + (inside[:-1] - self.before[from_:to]))
        start = starts[sentence]
        size = starts[sentence + 1] - start
        pieces = -(-size // self.max_tokens)
        begin = np.cumsum(pieces) - pieces - skip
        if len(pieces) and pieces.max() > 1:  # from sentences (S,) to units (U,); otherwise they are the same
            nth = ranges(pieces)
            document, sentence = np.repeat(document, pieces)[skip:], np.repeat(sentence, pieces)[skip:]
            start = (np.repeat(start, pieces) + nth * self.max_tokens)[skip:]
            size = np.minimum(np.repeat(size, pieces) - nth * self.max_tokens, self.max_tokens)[skip:]
        linear_end = np.cumsum(size)
        if len(split.separator_starts):
            # Separators up to each document's start.
            ahead = np.searchsorted(split.separator_starts, split.start[from_:to], "right")
            linear_end += ahead[document - from_]
        run = int(np.searchsorted(split.runs, from_, "right"))  # the run after that of the first document
        later = split.runs[run : int(np.searchsorted(split.runs, to, "left"))]  # documents that begin a run
        opens = np.searchsorted(document, later)  # their first units
        bounds = np.concatenate([[0], opens, [len(size)]]).astype(np.int64)
        run_end = np.repeat(bounds[1:], np.diff(bounds))
        last = int(split.runs[np.searchsorted(split.runs, to, "left")])  # one past the last document of the last run
        return _Units(start, size, sentence, document, run_end, linear_end, begin, low, high < int(self.before[last]))


def ranges(counts: NDArray[np.integer], first: Int64 | int = 0) -> Int64:
    """first[0], first[0] + 1, … counts[0] of them, then first[1], …

    >>> ranges(np.array([2, 0, 3])), ranges(np.array([2, 1]), np.array([5, 9]))
    (array([0, 1, 0, 1, 2]), array([5, 6, 9]))
    """
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)


def _follow(
    units: _Units, max_tokens: int, targets: TargetLengths | None, *, overrun: bool, put_back: PutBack | None
) -> tuple[Int64, Int64]:
    """The units at which passages begin, ascending, and one past the last unit of each: (P,) both.

    Where a passage begins depends on where the one before it stops, so each run is a chain of passages. All
    chains are followed at once, one passage per round, until only a few go on: these are followed one by one.
    In the example of `_Units`, if both are followed at once:

        now = [0, 4]    the first unit of each run
        now = [2, 5]    the units at which the next passages begin
        now = []        these stop at 4, where the other run begins, and at 7, after the last unit

    `now` (chains that go on,) are units. `head` (U,) is true where a passage begins, `opens` (U + 1,) where a
    run begins, and at U: there a chain ends.
    """
    ends, count = units.linear_end, len(units.size)

    def reach(unit: Int64) -> Int64:
        """One past the last unit of the passages that begin at these units."""
        target = max_tokens if targets is None else targets(units.document[unit], units.start[unit])
        goal = ends[unit] - units.size[unit] + target
        stop = np.searchsorted(ends, goal, "left") + 1 if overrun else np.maximum(np.searchsorted(ends, goal, "right"), unit + 1)
        return np.minimum(stop, units.run_end[unit])

    def following(unit: Int64) -> Int64:
        """The units at which the passages after those that begin at these units begin."""
        stop = reach(unit)
        if put_back is None:
            return stop
        border, apart = put_back(units.start[unit], stop - unit)
        return np.where(apart & (stop - unit > 1), unit + border, stop)

    opens, head = np.zeros(count + 1, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    opens[0] = opens[units.run_end] = True
    now = np.flatnonzero(opens[:-1])
    while len(now) > _FEW:
        head[now] = True
        now = following(now)
        now = now[~opens[now]]
    # (U,): where the next passage begins, for every unit, so that the loop below makes no array calls.
    jumps = following(np.arange(count)).tolist() if len(now) else []
    for cursor in now.tolist():
        head[cursor] = True
        while not opens[cursor := jumps[cursor]]:
            head[cursor] = True
    heads = np.flatnonzero(head)
    return heads, reach(heads)
