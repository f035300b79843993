"""The source of parallel text: a sentence with its translation as a companion, or documents that alternate between both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, NamedTuple, Unpack

import numpy as np

from cloze.bounds import Count
from cloze.corpus.readers.blocks import PAIRS
from cloze.corpus.sources.alternating import ALTERNATING, BoundAlternating
from cloze.corpus.sources.bound import BoundSplit, Companion, require_tokens, split_documents
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64, PassageCuts, RowPlan
from cloze.corpus.stores import languages as mixing
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError
from cloze.registry import register

FIELDS = ("tokens", "length", "document", "sentence", "word_start", "language")
WRONG = "distractor"


class PairSource(Source):
    """A source that `BoundPairs` reads: `Pairs` or `WordPairs`. `companion` is the view of the other side; `swap`: the
    order of the sides is random."""

    text_format: ClassVar[str | None] = PAIRS
    companion: ClassVar[str]
    swap: bool


@register("source", "pairs")
class Pairs(PairSource):
    """Sentences with their translations, for XLM's TLM and Unicoder (a store built with `--format pairs`).

    length: the length of the network's input; phases may set it instead.
    swap: the order of the two sides is random in every row; otherwise the first column comes first.
    languages: `{smooth: S}` draws pairs of languages with q ∝ p^S, p their shares of the pairs.
    static: the same rows with the same addresses in every epoch; only their order differs.
    alternate: rows of running text instead, in which every second sentence is a translation; see `BoundAlternating`.

    The companion `translation` is the other side. `distractor` is the other side of a random other pair in the same languages, or
    of the pair itself if the store has only one; pairs with equal text count as different. A side longer than the row is cut;
    the edit `frame` makes both fit together.
    """

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

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundPairs | BoundAlternating:
        """This source over one store. Raises `CorpusError` if the store does not hold pairs."""
        require_pairs(store, "parallel text")
        if len(store.languages) == 1:
            raise CorpusError(
                f"{store.path}: both columns are in one language, {store.languages[0]}; expected a text and its translation.\n"
                "  Correct the header of the file. A lexicon of related words is read with the source word_pairs."
            )
        return BoundAlternating(self, store, **address) if self.alternate else BoundPairs(self, store, **address)


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


class _Kin(NamedTuple):
    """Pairs sorted by their languages (`order`). For each pair: where the pairs of its languages begin in that order, its place
    among them, and their number; N of each."""

    order: Int64
    first: Int64
    rank: Int64
    number: Int64


class BoundPairs(BoundSplit):
    """Pairs of one store. The planned length of a row counts both sides."""

    source: PairSource

    def __init__(self, source: PairSource, store: Store, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.open_split(self.documents_of_part())

    def documents_of_part(self) -> Int64:
        """The pairs of this part."""
        return split_documents(self.store.documents, self.held_out)[self.subset]

    @property
    def layered(self) -> tuple[str, ...]:
        """The row and its companions."""
        return ("", f"{self.source.companion}.", f"{WRONG}.")

    def make_plan(self, epoch: int, max_tokens: int) -> RowPlan[PassageCuts]:
        """The pairs of one epoch."""
        require_tokens("pairs", max_tokens, 2, "a pair needs 2")
        split = self.split
        middle = self.store.sentence_starts[split.first + 1]
        both = np.minimum(middle - split.start, max_tokens) + np.minimum(split.stop - middle, max_tokens)
        cuts = PassageCuts(
            start=split.start, stop=split.stop, length=both.astype(np.int32), document=split.documents,
            sentence=split.first, sentences=np.full(len(both), 2, dtype=np.int32), separator_first=None,
        )
        return self.shuffled_plan(epoch, max_tokens, cuts, self._languages)

    def _languages(self) -> Int64:
        """A number for the two languages of each pair, in either order."""
        sides = np.sort(self.store.document_languages[self.split.documents].astype(np.int64), axis=1)
        return 256 * sides[:, 0] + sides[:, 1]

    def read_main(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """Always `tokens` (B, L), `length` and `document` (B); if wanted, `language` (B), `word_start` (B, L), `sentence` (B, L;
        0) and `layers/<name>` (B, L)."""
        return self._side(plan, plan.order[items], self._swapped(plan, items), want)

    @property
    def companions(self) -> Mapping[str, Companion]:
        """The other side, under the source's `companion`, and that of another pair, as `distractor`; the same fields."""
        return {self.source.companion: self._other, WRONG: self._distractor}

    def _swapped(self, plan: RowPlan[PassageCuts], items: Int64) -> Int64:
        """The side that each row shows, 0 or 1."""
        if not self.source.swap:
            return np.zeros(len(items), dtype=np.int64)
        return (self.draw(plan, items).uniform("pairs/swap") < 0.5).astype(np.int64)

    def _other(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        return self._side(plan, plan.order[items], 1 - self._swapped(plan, items), want)

    def _distractor(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        return self._side(plan, *self._wrong(plan, items, self._swapped(plan, items)), want)

    def _wrong(self, plan: RowPlan[PassageCuts], items: Int64, sides: Int64) -> tuple[Int64, Int64]:
        """For each item, of which the side in `sides` is read, a pair and its side that do not belong to it: the other side of
        another pair of the same languages, or of the item itself if there is no other."""
        kin, index = self._kin, plan.order[items]
        other_count = np.maximum(kin.number[index] - 1, 1)
        step = 1 + self.draw(plan, items).integers("pairs/distractor", other_count)
        return kin.order[kin.first[index] + (kin.rank[index] + step) % kin.number[index]], 1 - sides

    @cached_property
    def _kin(self) -> _Kin:
        sides = self.store.document_languages[self.split.documents].astype(np.int64)
        _, kind, number = np.unique(256 * sides[:, 0] + sides[:, 1], return_inverse=True, return_counts=True)
        order, first = np.argsort(kind, kind="stable"), (np.cumsum(number) - number)[kind]
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return _Kin(order, first, rank - first, number[kind])

    def _side(self, plan: RowPlan[PassageCuts], index: Int64, side: Int64, want: frozenset[str]) -> Arrays:
        document = plan.passages.document[index]
        arrays = self._gather.sentences(plan.passages.sentence[index] + side, document, plan.max_tokens, want)
        if "language" in want:
            arrays["language"] = self.store.document_languages[document, side].astype(np.int32)
        return arrays
