"""Deterministic training of the pieces of a unigram language model, on whole arrays.

The trainer of `tokenizers` sums in the order of a randomly seeded hash table, so two runs give different vocabularies. The
result of this one is still run by `tokenizers`, like every other tokenizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from cloze.errors import RecipeError
from cloze.text.vocabularies.sample import Alphabet, blocks_of

Float = NDArray[np.float64]
Ints = NDArray[np.int32]

SPACE = "\u2581"
_LONGEST = 16  # characters of a piece, its space included
_WORD_LIMIT = 24  # longer words are cut for training, so that the product of a word's probabilities fits float64
_CHARACTERS = 1_000_000  # of distinct words, the most frequent first: 98 % of the words of English running text
_COUNTED_WORDS = 2_000_000  # beyond this many distinct words, those seen once are dropped
_SEEDS_PER_PIECE = 8
_KEPT_PER_ROUND = 0.75
_ITERATIONS = 2
_SELDOM = 0.5  # pieces expected less often than this are dropped


def train_pieces(
    texts: Sequence[str], normaliser: normalizers.Normalizer | None, *, size: int, coverage: float
) -> list[tuple[str, float]]:
    """The best `size` pieces with their log-probabilities, most likely first.

    Kudo 2018, §3.2: start from frequent substrings of words, fit by expectation-maximisation, drop the quarter whose loss
    costs the least likelihood, and repeat. Characters that make up `coverage` of the text always keep a piece.

    Differs: seeds are counted substrings of at most 16 characters inside the most frequent words; the cost of dropping a
    piece is taken against its own next best spelling, as in SentencePiece; no Bayesian digamma term.
    """
    alphabet = {*Alphabet.of(texts, normaliser).chosen(coverage, most=max(1, size // 2))[0], SPACE}
    words = _count_words(texts, normaliser, alphabet)
    if not words:
        raise RecipeError(
            f"text.tokenizer.unigram: {size} pieces are too few for the characters of this text: they cannot spell a "
            "single word of it. Set a larger size, or use more text."
        )
    lattice = _seeds(words, size * _SEEDS_PER_PIECE)
    while True:
        for _ in range(_ITERATIONS):
            expected = lattice.expected()
            keep = lattice.required | (expected >= _SELDOM)
            lattice = lattice.keeping(keep).fitted(np.maximum(expected[keep], _SELDOM))
        if len(lattice.pieces) <= size:
            break
        cost = np.where(lattice.required, np.inf, lattice.expected() * lattice.loss_without())
        keep = np.zeros(len(cost), dtype=np.bool_)
        keep[np.argsort(-cost, kind="stable")[: max(size, int(len(cost) * _KEPT_PER_ROUND))]] = True
        lattice = lattice.keeping(keep)
    ranked = zip(lattice.pieces, lattice.score.tolist(), strict=True)
    return sorted(ranked, key=lambda entry: (-entry[1], entry[0]))


def unigram_engine(
    pieces: Sequence[tuple[str, float]],
    special: Sequence[str],
    unknown: str,
    normaliser: normalizers.Normalizer | None,
    *,
    last: Sequence[str] = (),
) -> tokenizers.Tokenizer:
    """The pieces as a tokenizer whose first ids are the special tokens; `last` are special tokens with the last ids.

    Words are cut at white space and begin with U+2581. The first character of every special literal is a piece of its own, so
    that plain text cannot spell one.
    """
    vocabulary = [*((literal, 0.0) for literal in special), *pieces, *((literal, 0.0) for literal in last)]
    engine = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=list(special).index(unknown), byte_fallback=False))
    if normaliser is not None:
        engine.normalizer = normaliser
    marks = "".join(sorted({"\\" + literal[0] for literal in [*special, *last]}))
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always"),
            pre_tokenizers.Split(Regex(f"[{marks}]"), "isolated"),
        ]
    )
    engine.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    engine.add_special_tokens([*special, *last])
    return engine


@dataclass(frozen=True)
class Lattice:
    """All spellings of all words: an arc is a piece and leads from one position in a word to a later one.

    Positions are numbered through all words: `places` (W+1,) holds the first of each word, which has one more position than
    characters. Arcs (A,) are sorted by the number of characters before their end, so that all words advance together.

    pieces: the spellings; required (P,): may not be dropped; score (P,): log-probability; weight (W,): count of the word.
    """

    pieces: list[str]
    required: NDArray[np.bool_]
    score: Float
    arc_piece: Ints
    arc_begin: Ints
    arc_end: Ints
    arc_word: Ints
    places: Ints
    weight: Float

    def expected(self) -> Float:
        """How often each piece is expected in the words, by the forward-backward algorithm: (P,)."""
        # By arc (A,): `chance`, `depth`. By position: `before`, the sum over spellings of the word up to here,
        # and `after`, over those of the rest. `groups` are the slices of arcs of equal depth.
        chance = np.exp(self.score)[self.arc_piece]
        before = np.zeros(int(self.places[-1]))
        before[self.places[:-1]] = 1.0
        after = np.zeros(len(before))
        after[self.places[1:] - 1] = 1.0
        depth = self.arc_end - self.places[self.arc_word]
        groups = [slice(a, b) for a, b in pairwise(np.searchsorted(depth, np.arange(_WORD_LIMIT + 3)).tolist()) if b > a]
        for group in groups:
            np.add.at(before, self.arc_end[group], before[self.arc_begin[group]] * chance[group])
        for group in reversed(groups):
            np.add.at(after, self.arc_begin[group], after[self.arc_end[group]] * chance[group])
        total = after[self.places[:-1]]  # (W,): the probability of each word
        # From the probability of an arc's piece to the expected count of the arc.
        chance *= before[self.arc_begin] * after[self.arc_end] * (self.weight / total)[self.arc_word]
        return np.bincount(self.arc_piece, weights=chance, minlength=len(self.pieces)).astype(np.float64)

    def fitted(self, expected: Float) -> Lattice:
        """The same lattice with log-probabilities from expected counts (P,)."""
        return replace(self, score=np.log(expected) - np.log(expected.sum()))

    def keeping(self, keep: NDArray[np.bool_]) -> Lattice:
        """The same lattice with only some of the pieces."""
        number = np.cumsum(keep, dtype=np.int32) - 1
        arcs = np.flatnonzero(keep[self.arc_piece])
        return replace(
            self,
            pieces=[self.pieces[i] for i in np.flatnonzero(keep).tolist()],
            required=self.required[keep],
            score=self.score[keep],
            arc_piece=number[self.arc_piece[arcs]].astype(np.int32),
            arc_begin=self.arc_begin[arcs],
            arc_end=self.arc_end[arcs],
            arc_word=self.arc_word[arcs],
        )

    def loss_without(self) -> Float:
        """The loss in log-likelihood if each piece is spelt with others instead (P,)."""
        scores = dict(zip(self.pieces, self.score.tolist(), strict=True))
        return np.array([scores[piece] - _best_without(piece, scores) for piece in self.pieces])


def _best_without(piece: str, scores: dict[str, float]) -> float:
    """The log-probability of the best spelling of a piece by at least two others."""
    size = len(piece)
    best = [0.0] + [-1e9] * size
    for end in range(1, size + 1):
        for begin in range(end):
            if end - begin < size:
                score = scores.get(piece[begin:end])
                if score is not None and best[begin] + score > best[end]:
                    best[end] = best[begin] + score
    return best[size]


def _count_words(
    texts: Sequence[str], normaliser: normalizers.Normalizer | None, alphabet: set[str]
) -> list[tuple[str, int]]:
    """The most frequent words of `_CHARACTERS` characters, written with their space, with their counts; sorted."""
    raw: Counter[str] = Counter()
    for block in blocks_of(texts):
        raw.update((normaliser.normalize_str(block) if normaliser is not None else block).split())
        if len(raw) > _COUNTED_WORDS:
            raw = Counter({word: count for word, count in raw.items() if count > 1})
    words: Counter[str] = Counter()
    for word, count in raw.items():
        spelt = SPACE + word
        for begin in range(0, len(spelt), _WORD_LIMIT):
            words[spelt[begin : begin + _WORD_LIMIT]] += count
    chosen: list[tuple[str, int]] = []
    room = _CHARACTERS
    for word, count in sorted(words.items(), key=lambda item: (-item[1], item[0])):
        if room > 0 and alphabet.issuperset(word):
            chosen.append((word, count))
            room -= len(word)
    return chosen


def _seeds(words: list[tuple[str, int]], most: int) -> Lattice:
    """The lattice of all single characters and the `most` substrings with the largest count x length.

    Substrings are compared by a 64-bit rolling hash.
    """
    # By word (W,): `size`, `weight`. By character of all words (C,): `points`, its `word`, its `depth` in it,
    # the characters `left` from it on, and the `rolling` hash of the substring that begins there.
    size = np.array([len(word) for word, _ in words], dtype=np.int64)
    weight = np.array([count for _, count in words], dtype=np.float64)
    text = "".join(word for word, _ in words)
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    word = np.repeat(np.arange(len(words)), size)
    depth = np.arange(len(points)) - np.repeat(np.cumsum(size) - size, size)
    left = size[word] - depth
    substrings: list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    rolling = np.zeros(len(points), dtype=np.uint64)
    for length in range(1, _LONGEST + 1):
        at = np.flatnonzero(left >= length)
        if not at.size:
            break
        rolling[at] = (rolling[at] + points[at + length - 1] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        rolling[at] ^= rolling[at] >> np.uint64(29)
        # From places `at` (n,) to distinct substrings (m,): `first` (m,) are indices into `at`, `inverse` (n,).
        _, first, inverse = np.unique(rolling[at], return_index=True, return_inverse=True)
        count = np.bincount(inverse, weights=weight[word[at]]).astype(np.float64)
        substrings.append((np.where(count >= 2, count, 0.0) if length > 1 else count, at[first], at, inverse))
    # (substrings of all lengths,), by length; `keep` too.
    gain = np.concatenate([count * (n + 1 if n else 0) for n, (count, *_) in enumerate(substrings)])
    singles = len(substrings[0][0])
    order = np.argsort(-gain, kind="stable")[:most]
    keep = gain > 0
    keep[np.setdiff1d(np.flatnonzero(keep), order, assume_unique=True)] = False
    keep[:singles] = True
    return _lattice(text, substrings, keep, word, depth, size, weight)


def _lattice(
    text: str,
    substrings: list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]],
    keep: NDArray[np.bool_],
    word: NDArray[np.int64],
    depth: NDArray[np.int64],
    size: NDArray[np.int64],
    weight: Float,
) -> Lattice:
    """The arcs of the kept substrings; `substrings` has, per length, counts, first places, all places and their substrings."""
    number = np.cumsum(keep) - 1  # (substrings,): the number of each as a piece
    pieces: list[str] = []
    counts: list[NDArray[np.float64]] = []
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    seen = 0
    for length, (count, first, at, which) in enumerate(substrings, start=1):
        selected = keep[seen : seen + len(count)]
        pieces += [text[start : start + length] for start in first[selected].tolist()]
        counts.append(count[selected])
        arc = np.flatnonzero(selected[which])
        parts.append((number[seen + which[arc]], at[arc], np.full(len(arc), length)))
        seen += len(count)
    # (A,) each: an arc's piece, the character it begins with, and its characters.
    piece, start, length_of = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(depth[start] + length_of, kind="stable")
    piece, start, length_of = piece[order], start[order], length_of[order]
    begin = start + word[start]  # every earlier word has one more position than characters
    share = np.concatenate(counts)
    return Lattice(
        pieces=pieces,
        required=np.array([len(spelling) == 1 for spelling in pieces]),
        score=np.log(share) - np.log(share.sum()),
        arc_piece=piece.astype(np.int32),
        arc_begin=begin.astype(np.int32),
        arc_end=(begin + length_of).astype(np.int32),
        arc_word=word[start].astype(np.int32),
        places=np.concatenate([[0], np.cumsum(size + 1)]).astype(np.int32),
        weight=weight,
    )
