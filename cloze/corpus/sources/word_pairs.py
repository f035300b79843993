"""The source of a lexicon: two related words as a row, with a word that is near one of them and not related to it."""

from __future__ import annotations

import copyreg
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.sources.bound import FEWEST
from cloze.corpus.sources.pairs import WRONG, BoundPairs, PairSource, require_pairs, sides_of
from cloze.corpus.sources.plan import Int64, PassageCuts, RowPlan
from cloze.corpus.stores.source import Address
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.text_vectors import BoundTextVectors
from cloze.errors import CorpusError, RecipeError, require_table
from cloze.registry import Given, register
from cloze.rows import Rows
from cloze.text import EncodedText

_STEP = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_NUMBERS = 1 << 22  # of vectors compared at a time: bounds memory, not results


@register("source", "word_pairs")
class WordPairs(PairSource):
    """Related words of a lexicon, for LIBERT (a store built with `--format pairs`, both columns in one language).

    length: the length of the network's input; phases may set it instead.
    swap: the order of the two words is random in every row; otherwise the first column comes first.
    near: the table of vectors (`text_vectors`) by which wrong words are chosen; without it they are random.
    among: how many random words of the lexicon are compared for each row: the one nearest to the row's word is its wrong one.
    static: the same rows with the same addresses in every epoch; only their order differs.

    The companion `related` is the other word of a pair. `distractor` is a word that the lexicon, in either order, does not relate
    to the row's. Words are held out, not pairs: pairs of two held-out words are the held-out part, and pairs of one are left
    out of both parts, so that no held-out word occurs in training. A text of several words counts as one.

    Byte-level BPE has other pieces for a word behind a space than for one at the start of a text. Each word of a row has one or
    the other with equal probability, as inside a text nearly every word follows a space.

    Differs: each row draws its own candidates, so rows depend neither on the batch nor on the number of processes (Lauscher et
    al. compare the words of a batch).
    """

    companion: ClassVar[str] = "related"

    def __init__(
        self, *, length: Count | None = None, swap: bool = True, near: str | None = None, among: Count = 64, static: bool = False,
        tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        if among < 1:
            raise RecipeError(f"word_pairs.among: {among}; expected 1 or more.")
        if near is not None and tables is not None:
            require_table("word_pairs.near", near, tables)
        self.length, self.swap, self.near, self.among, self.static, self.tables = length, swap, near, among, static, tables
        self.gives = sides_of(self.companion)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tables": None}  # bound already: a data worker needs no vectors

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundWordPairs:
        """This source over one store. Raises `CorpusError` if the store does not hold pairs of one language."""
        require_pairs(store, "a lexicon")
        if len(store.languages) > 1:
            raise CorpusError(
                f"{store.path}: the two columns of a lexicon are words of one language; its header names "
                f"{', '.join(store.languages)}.\n  The first line of the file must name the language of both columns, such as "
                "en<TAB>en; the words follow."
            )
        return BoundWordPairs(self, store, **address)


class LexiconTexts(NamedTuple):
    """The distinct texts of a lexicon, numbered in the order of their hashes. hash: that of each, (U,); place: a sentence of the
    store that holds it, (U,); of: the text of every sentence, (S,)."""

    hash: NDArray[np.uint64]
    place: Int64
    of: Int64


class BoundWordPairs(BoundPairs):
    """A lexicon of one store."""

    def __init__(self, source: WordPairs, store: Store, **address: Unpack[Address]) -> None:
        self.words = words_of(store)
        super().__init__(source, store, **address)
        documents = self.split.documents
        if self.subset == "train" and not len(documents):
            raise CorpusError(f"{store.path}: no pair of words is left for training.\n  Give more pairs, or hold out less.")
        self.among = source.among
        first, second = (self.words.of[store.document_sentences[:-1] + side] for side in (0, 1))
        self._known = np.unique(np.concatenate([self._key(first, second), self._key(second, first)]))
        sentences = self.split.first[:, None] + np.arange(2)
        self._places = sentences.reshape(-1)  # of every side of this part
        self._directions = self._vectors(source) if len(documents) else None

    def documents_of_part(self) -> Int64:
        """The pairs of this part: words are held out."""
        return split_words(self.store, self.words, self.held_out)[self.subset]

    def __reduce__(self) -> tuple[Any, ...]:
        """Its state without plans: a data worker has no table of vectors to bind the source again."""
        state = {**self.__dict__, "_plans": OrderedDict()}
        return copyreg.__newobj__, (type(self),), state  # type: ignore[attr-defined]

    def read(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Rows:
        """As in `BoundPairs`; with byte-level BPE, half of the words are spelled as behind a space."""
        rows = super().read(plan, items, want)
        draw = self.draw(plan, items)
        for view in ("", f"{self.source.companion}.", f"{WRONG}.") if self._behind_space else ():
            if f"{view}tokens" in rows:
                rows = self._respelled(rows, view, draw.uniform(f"word_pairs/space/{view}") < 0.5, plan.max_tokens)
        return rows

    @cached_property
    def _behind_space(self) -> dict[bytes, EncodedText]:
        """Each distinct text as it is spelled behind a space, by the bytes of its ids. Empty if there is one way to spell it, or
        if its tokens have labels."""
        tokenizer, starts = self.store.tokenizer(), self.store.sentence_starts
        if tokenizer.kind != "byte_bpe" or self.store.aligned:
            return {}
        spelled = tokenizer.encode_batch([f" {text}" for text in _spelled(self.store, self.words.place)])
        ids = (
            np.asarray(self.store.tokens[starts[sentence] : starts[sentence + 1]], np.int32)
            for sentence in self.words.place.tolist()
        )
        return {tokens.tobytes(): other for tokens, other in zip(ids, spelled, strict=True)}

    def _respelled(self, rows: Rows, view: str, chosen: NDArray[np.bool_], max_tokens: int) -> Rows:
        """The rows with the other spelling of a view's word where they are `chosen` (B,); a word that was cut stays."""
        tokens, length = rows[f"{view}tokens"], rows[f"{view}length"].copy()
        spellings: dict[int, EncodedText] = {}
        for row in np.flatnonzero(chosen).tolist():
            other = self._behind_space.get(tokens[row, : length[row]].tobytes())
            if other is not None and len(other.ids) <= max_tokens:
                spellings[row], length[row] = other, len(other.ids)
        width = max(int(length.max(initial=0)), 1)
        fields = {f"{view}length": length, f"{view}tokens": _widened(tokens, width)}
        for row, other in spellings.items():
            fields[f"{view}tokens"][row, : length[row]] = other.ids
        if f"{view}word_start" in rows:
            starts = fields[f"{view}word_start"] = _widened(rows[f"{view}word_start"], width)
            for row, other in spellings.items():
                starts[row, : length[row]] = other.word_start
        if f"{view}sentence" in rows:
            fields[f"{view}sentence"] = _widened(rows[f"{view}sentence"], width)
        return rows.having_all(fields)

    def _vectors(self, source: WordPairs) -> NDArray[np.float32] | None:
        """A direction for each distinct text, (U, D); None: wrong words are random."""
        if source.near is None or source.tables is None:
            return None
        table = source.tables[source.near]
        if not isinstance(table, BoundTextVectors):
            raise RecipeError(
                f"word_pairs.near: the table {source.near!r} is not one of text_vectors.\n"
                f"  Write tables: {{{source.near}: {{text_vectors: {{}}}}}}."
            )
        return _directions(self.store, table)

    def _wrong(self, plan: RowPlan[PassageCuts], items: Int64, sides: Int64) -> tuple[Int64, Int64]:
        """For each item, a pair and its side whose word is not related to the one shown: the nearest to it among random ones."""
        index, draw = plan.order[items], self.draw(plan, items)
        first = plan.passages.sentence[index]
        word = self.words.of[first + sides]
        drawn = draw.integers("word_pairs/distractor", len(self._places), self.among)
        other = self.words.of[self._places[drawn]]
        fits = ~self._related(word[:, None], other)
        likeness = np.where(fits, self._likeness(word, other), -np.inf)
        best = drawn[np.arange(len(items)), likeness.argmax(axis=1)]
        for row in np.flatnonzero(~fits.any(axis=1)):
            best[row] = self._any_unrelated(int(word[row]), int(drawn[row, 0]))
        return best // 2, best % 2

    def _likeness(self, words: Int64, other: Int64) -> NDArray[np.float32]:
        """The cosines of words (B,) and their candidates (B, K), -1 for those without a vector; 0 without vectors."""
        cosines = np.zeros(other.shape, np.float32)
        if self._directions is None:
            return cosines
        step = max(1, _NUMBERS // (self.among * self._directions.shape[1]))
        for low in range(0, len(words), step):
            here = self._directions[other[low : low + step]]
            cosines[low : low + step] = (here @ self._directions[words[low : low + step], :, None])[..., 0]
            cosines[low : low + step][~here.any(axis=2)] = -1.0
        return cosines

    def _any_unrelated(self, index: int, start: int) -> int:
        """The first side from `start` on whose word is not related to this one."""
        turned = np.roll(np.arange(len(self._places)), -start)
        fits = ~self._related(np.array(index), self.words.of[self._places[turned]])
        if not fits.any():
            (word,) = _spelled(self.store, self.words.place[index : index + 1])
            raise CorpusError(
                f"{self.store.path}: {word!r} is related to every other word, so it has no wrong one.\n  Give more pairs."
            )
        return int(turned[fits.argmax()])

    def _related(self, first: Int64, second: Int64) -> NDArray[np.bool_]:
        """Whether two words are the same or a pair of the lexicon, in either order."""
        keys = self._key(first, second)
        index = np.minimum(np.searchsorted(self._known, keys), len(self._known) - 1)
        return np.asarray((self._known[index] == keys) | (first == second))

    def _key(self, first: Int64, second: Int64) -> Int64:
        return first * len(self.words.hash) + second


def _widened(values: NDArray[Any], width: int) -> NDArray[Any]:
    """A copy of values (B, L) with `width` columns; what is added is zero."""
    padded = np.zeros((len(values), width), values.dtype)
    least = min(width, values.shape[1])
    padded[:, :least] = values[:, :least]
    return padded


def _spelled(store: Store, sentences: Int64) -> list[str]:
    """The texts of some sentences."""
    starts, tokenizer = store.sentence_starts, store.tokenizer()
    return [tokenizer.decode(store.tokens[starts[sentence] : starts[sentence + 1]]).strip() for sentence in sentences.tolist()]


@lru_cache(maxsize=1)
def _directions(store: Store, table: BoundTextVectors) -> NDArray[np.float32]:
    """The vectors of a lexicon's distinct texts, (U, D); both parts of a run share them."""
    spelled = _spelled(store, words_of(store).place)
    vectors = table.directions(spelled)
    if not vectors.any():
        raise CorpusError(
            f"{table.place}: has a vector for none of the {len(spelled):,} words of {store.path}, such as {spelled[-1]!r}.\n"
            "  Give vectors of the same language, and set text.normalise.lower to match them."
        )
    return vectors


@lru_cache(maxsize=1)
def words_of(store: Store) -> LexiconTexts:
    """The distinct texts of a store's sentences, by a 64-bit hash of their tokens; two texts collide too rarely to matter."""
    start, size = store.sentence_starts[:-1], np.diff(store.sentence_starts)
    hashed = np.zeros(len(size), np.uint64)
    for offset in range(int(size.max(initial=0))):
        longer = np.flatnonzero(size > offset)
        value = hashed[longer] + store.tokens[start[longer] + offset].astype(np.uint64) + np.uint64(1)
        value *= _STEP
        hashed[longer] = value ^ (value >> _SHIFT)
    hashes, first, of = np.unique(hashed, return_index=True, return_inverse=True)
    return LexiconTexts(hashes, first.astype(np.int64), of.astype(np.int64).reshape(-1))


def split_words(store: Store, words: LexiconTexts, held_out: float) -> dict[str, Int64]:
    """The pairs of the parts `train` and `held_out`, which share no word; the same for every seed.

    A word is held out if its hash, as a random number, is below p. p is chosen so that a share `held_out` of the pairs of equal
    words (both held out, or both not) is held out where words are paired independently: p² : (1 - p)². Nothing is held out of
    fewer than twenty pairs.
    """
    if not 0.0 <= held_out < 1.0:
        raise RecipeError(f"held_out: {held_out} is not a share below 1.")
    pairs = np.arange(store.documents, dtype=np.int64)
    if held_out == 0.0 or len(pairs) < FEWEST:
        return {"train": pairs, "held_out": pairs[:0]}
    odds = (held_out / (1 - held_out)) ** 0.5
    draws = rng.Draw(rng.row_keys("held_out", items=words.hash.view(np.int64))).uniform("word")
    chosen = draws < odds / (1 + odds)
    first = chosen[words.of[store.document_sentences[:-1]]]
    second = chosen[words.of[store.document_sentences[:-1] + 1]]
    return {"train": pairs[~first & ~second], "held_out": pairs[first & second]}
