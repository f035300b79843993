"""The source of parallel text: a sentence with its translation as a companion, or documents that alternate between both."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.readers.blocks import PAIRS
from cloze.corpus.sources.alternating import ALTERNATING, BoundAlternating
from cloze.corpus.sources.gather import Gatherer
from cloze.corpus.sources.passages import remember, split_documents
from cloze.corpus.sources.plan import Cuts, Int64, Plan, Split
from cloze.corpus.stores import languages as mixing
from cloze.corpus.stores.source import Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.rows import Rows

FIELDS = ("tokens", "length", "document", "sentence", "word_start", "language")
WRONG = "distractor"


@register("source", "pairs")
class Pairs(Source):
    """Sentences with their translations, for XLM's TLM and Unicoder (a store built with `--format pairs`).

    length: the length of the network's input; phases may set it instead.
    swap: the order of the two sides is random in every row; otherwise the first column comes first.
    languages: `{smooth: S}` draws pairs of languages with q ∝ p^S, p their shares of the pairs.
    static: the same rows with the same addresses in every epoch; only their order differs.
    alternate: rows of running text instead, in which every second sentence is a translation; see `BoundAlternating`.

    The companion `translation` is the other side. `distractor` is the other side of a random other pair in the same languages, or
    of the pair itself if the store has only one; pairs with equal text count as different. A side longer than the room is cut;
    the edit `frame` makes both fit together.
    """

    text_format: ClassVar[str | None] = PAIRS
    companion: ClassVar[str] = "translation"

    def __init__(
        self, *, length: Count | None = None, swap: bool = True, languages: dict[str, float] | None = None,
        static: bool = False, alternate: bool = False,
    ) -> None:
        self.length = length
        self.swap = swap
        self.languages = languages
        self.smooth = mixing.smoothing(languages, "pairs")
        self.static = static
        self.alternate = alternate
        self.gives = ALTERNATING if alternate else sides_of(self.companion)

    def bind(
        self, store: Store, *, seed: int, entry: str, held_out: float = 0.0,
        part: Literal["train", "held_out"] = "train",
    ) -> BoundPairs | BoundAlternating:
        """This source over one store. Raises `CorpusError` if the store does not hold pairs."""
        require_pairs(store, "parallel text")
        if len(store.languages) == 1:
            raise CorpusError(
                f"{store.path}: both columns are in one language, {store.languages[0]}; expected a text and its translation.\n"
                "  Correct the header of the file. A lexicon of related words is read with the source word_pairs."
            )
        documents = split_documents(store.documents, held_out)[part]
        if self.alternate:
            return BoundAlternating(self, store, documents, seed=seed, entry=entry)
        return BoundPairs(self, store, documents, seed=seed, entry=entry)


def sides_of(companion: str) -> frozenset[str]:
    """The fields of a row, of the other side of its pair and of a wrong one."""
    return frozenset(f"{view}{name}" for view in ("", f"{companion}.", f"{WRONG}.") for name in FIELDS)


def require_pairs(store: Store, what: str) -> None:
    """Raise a `CorpusError` unless the store holds pairs; `what` is the text to build them from."""
    if not store.pairs:
        raise CorpusError(
            f"{store.path}: this store holds running text, not pairs.\n"
            f"  Build one from {what}: cloze corpus build PATH... --format pairs --out STORE"
        )


class PairSource(Protocol):
    """What `BoundPairs` needs from its source: `Pairs` or `WordPairs`."""

    gives: frozenset[str]
    companion: ClassVar[str]        # the view of the other side
    swap: bool
    smooth: float | None            # exponent of the languages; None: languages in their own proportions
    static: bool


class _Kin(NamedTuple):
    """Pairs sorted by their languages (`order`). For each pair: where the pairs of its languages begin in that order, its place
    among them, and their number; N of each."""

    order: Int64
    first: Int64
    rank: Int64
    number: Int64


class BoundPairs:
    """A source over one store, seed and entry: plans epochs and reads rows at random."""

    def __init__(self, source: PairSource, store: Store, documents: Int64, *, seed: int, entry: str) -> None:
        self.source = source
        self.store = store
        self.seed = seed
        self.entry = entry
        self.split = Split.of(store, documents, joined=False, separated=False)
        self._gather = Gatherer(store, self.split, None)
        self._plans: OrderedDict[Any, Plan] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": OrderedDict()}

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        views = ("", f"{self.source.companion}.", f"{WRONG}.")
        return self.source.gives | {f"{view}{name}" for name in self.store.aligned for view in views}

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus, both sides."""
        return int((self.split.stop - self.split.start).sum())

    def plan(self, epoch: int, room: int) -> Plan:
        """The pairs of one epoch with room for `room` tokens per row; a pure function of seed, entry, epoch and room.

        The planned length of a row counts both sides.
        """
        if room < 2:
            raise RecipeError(f"pairs: {room} tokens of room per row; a pair needs 2 (is `length` too small?).")

        def make() -> Plan:
            split, starts = self.split, self.store.sentence_starts
            middle = starts[split.first + 1]
            both = np.minimum(middle - split.start, room) + np.minimum(split.stop - middle, room)
            cut = Cuts(
                start=split.start, stop=split.stop, length=both.astype(np.int32), document=split.documents,
                sentence=split.first, sentences=np.full(len(both), 2, dtype=np.int32), lead=None,
            )
            if self.source.smooth is None:
                return Plan(epoch, room, cut, rng.permutation(len(both), self.seed, self.entry, "order", epoch))
            sides = np.sort(self.store.document_languages[split.documents].astype(np.int64), axis=1)
            drawn = mixing.resample(256 * sides[:, 0] + sides[:, 1], self.source.smooth, epoch, self.seed, self.entry)
            return Plan(epoch, room, cut, drawn.order, drawn.repeat)

        return remember(self._plans, (epoch, room), make)

    def read(self, plan: Plan, items: Int64, want: frozenset[str]) -> Rows:
        """The rows of some items (B positions in the plan's order).

        Always `tokens` (B, L), `length` and `document` (B); if wanted, `language` (B), `word_start` (B, L), `sentence` (B, L; 0)
        and `layers/<name>` (B, L). The other side has the same fields under the source's `companion`, the side of another pair
        under `distractor.`; both are read if any of their fields is wanted.
        """
        index = plan.order[items]
        swapped = np.zeros(len(index), dtype=np.int64)
        if self.source.swap:
            swapped = (self.draw(plan, items).uniform("pairs/swap") < 0.5).astype(np.int64)
        arrays = self._side(plan, index, swapped, want)
        for view in (self.source.companion, WRONG):
            names = frozenset(name.removeprefix(f"{view}.") for name in want if name.startswith(f"{view}."))
            if names:
                there = 1 - swapped
                whose, side = (index, there) if view == self.source.companion else self._wrong(plan, items, swapped)
                side_arrays = self._side(plan, whose, side, names)
                arrays.update({f"{view}.{name}": value for name, value in side_arrays.items()})
        return Rows(arrays, checked=True)

    def _wrong(self, plan: Plan, items: Int64, shown: Int64) -> tuple[Int64, Int64]:
        """For each item, of which the side `shown` is read, a pair and its side that do not belong to it: the other side of
        another pair of the same languages, or of the item itself if there is no other."""
        kin, index = self._kin, plan.order[items]
        others = np.maximum(kin.number[index] - 1, 1)
        step = 1 + self.draw(plan, items).integers("pairs/distractor", others)
        return kin.order[kin.first[index] + (kin.rank[index] + step) % kin.number[index]], 1 - shown

    @cached_property
    def _kin(self) -> _Kin:
        sides = self.store.document_languages[self.split.documents].astype(np.int64)
        _, kind, number = np.unique(256 * sides[:, 0] + sides[:, 1], return_inverse=True, return_counts=True)
        order, first = np.argsort(kind, kind="stable"), (np.cumsum(number) - number)[kind]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return _Kin(order, first, rank - first, number[kind])

    def draw(self, plan: Plan, items: Int64) -> rng.Draw:
        """The random numbers of some items, addressed by seed, entry, epoch (0 if static), pair and its repeat."""
        return rng.Draw(rng.row_keys(
            self.seed, self.entry, 0 if self.source.static else plan.epoch, items=plan.address(items, self.source.static)
        ))

    def _side(self, plan: Plan, index: Int64, side: Int64, want: frozenset[str]) -> dict[str, NDArray[Any]]:
        starts, document = self.store.sentence_starts, plan.passages.document[index]
        sentence = plan.passages.sentence[index] + side
        length = np.minimum(starts[sentence + 1] - starts[sentence], plan.room)
        arrays = self._gather.spans(starts[sentence], length, sentence, document, want)
        if "language" in want:
            arrays["language"] = self.store.document_languages[document, side].astype(np.int32)
        return arrays
