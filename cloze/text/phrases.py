"""The tokenizer of whole words and phrases: finds pairs of words that stand together more often than chance would have it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.array_files import write_values
from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.registry import register
from cloze.text.encoding.word_encoder import encoder_for
from cloze.text.joins import Join, Joins, PairTable, join_pairs
from cloze.text.normalise import Normalise
from cloze.text.tokenizer import Tokenizer
from cloze.text.words import Words

Int64 = NDArray[np.int64]
Report = Callable[[str], None]

_TOGETHER = 1 << 22          # tokens whose pairs are sorted together
_MOST = 40_000_000           # different pairs held; beyond, the rarest are forgotten (gensim's max_vocab_size)
_LINES = 20_000              # lines encoded in one call
_SMALL = 4_000_000           # characters of text below which compiled code is not worth loading
_SHOWN = 4                   # phrases that a report names


@register("tokenizer", "phrases")
@dataclass(frozen=True)
class Phrases(Words):
    """Whole words, and phrases such as `new_york` (Mikolov et al., 2013b, §4; word2phrase.c of the authors' code).

    Every pass counts the pairs of neighbours in each line and joins those whose score is above its threshold, from left to right;
    the next pass sees phrases as words, so that two passes give phrases of up to four words.

    min_count, size, split, special: as for `words`; a phrase is at least as frequent as `min_count` when it is found.
    thresholds: one for each pass.
    score: `word2phrase` is (n(ab) - min_pairs) / (n(a) n(b)) times the words of the text; `npmi` is the normalised pointwise
      mutual information, -1 … 1 (Bouma, 2009; gensim's `scoring="npmi"`).
    min_pairs: what `word2phrase` subtracts (5 in the code); with `npmi` the fewest occurrences of a pair.

    A word that is part of a phrase keeps its own id, however rarely it occurs outside the phrase. `phrases.tsv` next to the
    tokenizer lists all pairs with their counts and scores.

    Differs: punctuation marks, which the authors removed from the text, belong to no phrase. word2phrase.c also counts the pair
    of words around a line end. gensim's default score multiplies by the number of different words and pairs, not by the words of
    the text: its threshold t is here t · words / different.
    """

    thresholds: tuple[float, ...] = (200.0, 100.0)
    score: Literal["word2phrase", "npmi"] = "word2phrase"
    min_pairs: Count = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score not in ("word2phrase", "npmi"):
            raise RecipeError(f"text.tokenizer.phrases.score: {self.score!r}; expected word2phrase or npmi.")
        if not self.thresholds:
            raise RecipeError("text.tokenizer.phrases.thresholds: empty; expected a threshold for each pass, such as [200, 100].")
        low = [threshold for threshold in self.thresholds if self.score == "word2phrase" and not threshold >= 0]
        if low:
            raise RecipeError(
                f"text.tokenizer.phrases.thresholds: {low[0]:g}; word2phrase's score is compared with numbers from 0 on, as in "
                "[200, 100]."
            )
        wrong = [threshold for threshold in self.thresholds if self.score == "npmi" and not -1 <= threshold < 1]
        if wrong:
            raise RecipeError(f"text.tokenizer.phrases.thresholds: {wrong[0]:g}; npmi is between -1 and 1, as in [0.5].")

    def train_on(self, texts: Iterable[str], normalise: Normalise, report: Report) -> Tokenizer:
        """Train on a stream of texts, read once: a copy of it, and its ids, are kept in temporary files meanwhile."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="\n") as copy:
            words = super().train_on(_copied(texts, copy), normalise, report)
            size = copy.tell()
            copy.seek(0)
            with _Ids.of(copy, words, compiled=size >= _SMALL) as ids:
                return self._with_phrases(words, ids, normalise, report)

    def _with_phrases(self, words: Tokenizer, ids: _Ids, normalise: Normalise, report: Report) -> Tokenizer:
        spelled = list(words.spellings)
        vocabulary = {word: number for number, word in enumerate(spelled)}
        pairs: list[Join] = []
        for number, threshold in enumerate(self.thresholds, 1):
            candidates = self._found(ids, spelled, threshold)
            joins = [
                Join(number, spelled[a], spelled[b], times, score)
                for a, b, times, score in zip(*(part.tolist() for part in candidates), strict=True)
            ]
            for join in joins:
                vocabulary.setdefault(join.word, len(vocabulary))
            spelled = list(vocabulary)
            numbers = np.array([vocabulary[join.word] for join in joins], np.int64)
            ids.join(PairTable.of(candidates.first, candidates.second, numbers, len(spelled)) if joins else None, len(spelled))
            pairs += joins
            examples = ": " + ", ".join(join.word for join in joins[:_SHOWN]) if joins else ""
            report(f"pass {number} joins {len(joins):,} pairs{examples}{', …' if len(joins) > _SHOWN else ''}")
        counts = ids.counts.tolist()
        roles = set(words.special_ids.tolist())
        ranked = sorted(
            (word for word, n in vocabulary.items() if n not in roles), key=lambda word: (-counts[vocabulary[word]], word)
        )
        chosen, pairs = _that_fit(ranked, pairs, None if self.size is None else self.size - len(roles))
        return self.of_words(chosen, normalise).joined_by(Joins(pairs) if pairs else None)

    def _found(self, ids: _Ids, spelled: Sequence[str], threshold: float) -> WordPairCounts:
        """The pairs above a threshold, the most frequent first."""
        counts, total, size = ids.counts, ids.total, len(spelled)
        joinable = np.array([any(map(str.isalnum, word)) for word in spelled]) & (np.arange(size) >= ids.roles)
        keys, together = ids.pairs(joinable)
        enough = together >= max(self.min_count, self.min_pairs)
        keys, together = keys[enough], together[enough]
        first, second = np.divmod(keys, size)
        scores = self.scores(counts[first], counts[second], together, total)
        order = np.flatnonzero(scores > threshold)
        order = order[np.lexsort((keys[order], -together[order]))]
        return WordPairCounts(first[order], second[order], together[order], scores[order])

    def scores(self, first: Int64, second: Int64, together: Int64, total: int) -> NDArray[np.float64]:
        """The scores of pairs (N,), from the counts of both words and of the pair, and the words of the text."""
        a, b, ab = first.astype(np.float64), second.astype(np.float64), together.astype(np.float64)
        if self.score == "word2phrase":
            return (ab - self.min_pairs) / a / b * total
        scores: NDArray[np.float64] = np.log(ab / total / (a / total * (b / total))) / -np.log(ab / total)
        return scores


class WordPairCounts(NamedTuple):
    """Pairs by the ids of their words, with counts and scores: (N,) each."""

    first: Int64
    second: Int64
    times: Int64
    score: NDArray[np.float64]


class _Ids:
    """The ids of a text in a temporary file, line by line, and how often each occurs; `join` writes them again with phrases."""

    def __init__(self, roles: int, size: int) -> None:
        self.roles, self.counts = roles, np.zeros(size, np.int64)
        self._lengths: list[int] = []
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  `__exit__` closes it

    @classmethod
    def of(cls, text: IO[str], words: Tokenizer, *, compiled: bool) -> _Ids:
        """The ids of a file of lines."""
        ids = cls(len(words.special_ids), words.size)
        encoder = encoder_for(words, memory_mb=64, compiled=compiled)
        while lines := list(islice(text, _LINES)):
            encoded = encoder.encode_lines([line.rstrip("\n") for line in lines])
            last = np.zeros(len(encoded.ids), np.bool_)
            ends = encoded.offsets[1:]
            last[ends[ends > encoded.offsets[:-1]] - 1] = True
            ids._append(ids._file, ids._lengths, encoded.ids, last, ids.counts)
        return ids

    def __enter__(self) -> _Ids:
        return self

    def __exit__(self, *problem: object) -> None:
        self._file.close()

    @property
    def total(self) -> int:
        """The tokens of the text, unknown words included."""
        return sum(self._lengths)

    def join(self, table: PairTable | None, size: int) -> None:
        """Join the pairs of a table; the ids are below `size` then."""
        if table is None:
            return
        counts, lengths = np.zeros(size, np.int64), list[int]()
        file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  it takes the place of the other
        for ids, last in self._parts():
            joined, stays = join_pairs(table, ids, last)
            gone = np.flatnonzero(~stays)
            last[gone - 1] |= last[gone]
            self._append(file, lengths, joined[stays], last[stays], counts)
        self._file.close()
        self._file, self._lengths, self.counts = file, lengths, counts

    def pairs(self, joinable: NDArray[np.bool_]) -> tuple[Int64, Int64]:
        """The pairs of neighbours that may be joined, as first · size + second, ascending, and how often each occurs."""
        size, most = len(self.counts), 0
        keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        held: list[Int64] = []
        waiting = 0
        for ids, last in self._parts():
            inside = joinable[ids]
            at = np.flatnonzero(inside[:-1] & inside[1:] & ~last[:-1])
            held.append(ids[at].astype(np.int64) * size + ids[at + 1])
            waiting += len(at)
            if waiting >= _TOGETHER:
                keys, counts = _merged(keys, counts, held)
                held, waiting = [], 0
                while len(keys) > _MOST:  # as word2phrase.c's ReduceVocab
                    most += 1
                    keys, counts = keys[counts > most], counts[counts > most]
        return _merged(keys, counts, held)

    def _parts(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_]]]:
        self._file.seek(0)
        for length in self._lengths:
            packed = np.fromfile(self._file, np.int32, length)
            yield packed >> 1, (packed & 1).astype(np.bool_)

    def _append(
        self, file: IO[bytes], lengths: list[int], ids: NDArray[np.int32], last: NDArray[np.bool_], counts: Int64
    ) -> None:
        write_values(file, (2 * ids + last).astype(np.int32))
        lengths.append(len(ids))
        counts += np.bincount(ids, minlength=len(counts))


def _merged(keys: Int64, counts: Int64, held: list[Int64]) -> tuple[Int64, Int64]:
    """Keys, ascending, and their counts, with further keys counted."""
    if not held:
        return keys, counts
    new, times = np.unique(np.concatenate(held), return_counts=True)
    index = np.searchsorted(keys, new)
    repeated = np.zeros(len(new), np.bool_)
    inside = index < len(keys)
    repeated[inside] = keys[index[inside]] == new[inside]
    counts[index[repeated]] += times[repeated]
    fresh = ~repeated
    return np.insert(keys, index[fresh], new[fresh]), np.insert(counts, index[fresh], times[fresh])


def _that_fit(ranked: list[str], pairs: list[Join], room: int | None) -> tuple[list[str], list[Join]]:
    """The first words that there is room for, and the pairs that can still be made of them, with their phrases."""
    words = ranked if room is None else ranked[:room]
    room_for, left = set(words), list[Join]()
    usable = room_for - {pair.word for pair in pairs}
    for pair in pairs:
        if pair.first in usable and pair.second in usable and pair.word in room_for:
            usable.add(pair.word)
            left.append(pair)
    return [word for word in words if word in usable], left


def _copied(texts: Iterable[str], copy: IO[str]) -> Iterator[str]:
    """The texts, each also written to a line of its own."""
    for text in texts:
        copy.write(text.replace("\n", " ") + "\n")
        yield text
