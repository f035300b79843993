"""fastText's hashed n-grams: which rows of a table stand for a word, for a run of words, and for a text. numpy only, no torch.

`word_vectors` and the vectors of other tools use the functions. `bag_of_ngrams`, its table `hashed_ngrams` and its engine use
`Bag`, which knows the rows of every word of a vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CorpusError

_BASIS, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF
_RUN = np.uint64(116049371)
_LITERAL = re.compile(r"\[[A-Z0-9]+\]|<[^\s<>]+>|<\|[^\s<>]+\|>")


def fasttext_hash(text: str | bytes) -> int:
    """FNV-1a of 32 bits over the UTF-8 bytes, each extended as a signed number (fastText `dictionary.cc`, `hash`).

    >>> fasttext_hash("<wh"), fasttext_hash("é")
    (1048167652, 1023043777)
    """
    value = _BASIS
    for byte in text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * _PRIME) & _MASK
    return value


def ngrams_of(word: str, lengths: tuple[int, int]) -> list[str]:
    """The character n-grams of `<word>` in fastText's order: by where they start, then by length.

    A single character that is one of the two bounds is none (`dictionary.cc`, `computeSubwords`).

    >>> ngrams_of("where", (3, 3))
    ['<wh', 'whe', 'her', 'ere', 're>']
    """
    bounded = f"<{word}>"
    shortest, longest = lengths
    grams = []
    for start in range(len(bounded)):
        for size in range(shortest, min(longest, len(bounded) - start) + 1):
            stop = start + size
            if not (size == 1 and (start == 0 or stop == len(bounded))):
                grams.append(bounded[start:stop])
    return grams


def ngram_rows(word: str, lengths: tuple[int, int], buckets: int, first: int) -> list[int]:
    """The rows of a word's n-grams in a table whose buckets begin at row `first`; an n-gram that occurs twice counts twice."""
    return [first + fasttext_hash(gram) % buckets for gram in ngrams_of(word, lengths)]


def count_roles(spellings: Sequence[str]) -> int:
    """How many ids at the beginning of a vocabulary of words are roles, such as `[UNK]` or `</s>`: those are no words."""
    return next((number for number, spelling in enumerate(spellings) if not _LITERAL.fullmatch(spelling)), len(spellings))


def rows_of_words(
    spellings: Sequence[str], lengths: tuple[int, int], buckets: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(starts (V+1,), rows): id i has the rows `rows[starts[i]:starts[i+1]]`, its own first. Roles have their own alone."""
    first, roles = len(spellings), count_roles(spellings)
    starts = np.zeros(first + 1, np.int64)
    rows: list[int] = []
    for number, spelling in enumerate(spellings):
        rows.append(number)
        if number >= roles:
            rows += ngram_rows(spelling, lengths, buckets, first)
        starts[number + 1] = len(rows)
    return starts, np.asarray(rows, np.int64)


def hashes_of_words(spellings: Iterable[str]) -> NDArray[np.int64]:
    """The hash of every spelling as fastText keeps it for runs of words: 32 bits, signed (V,)."""
    return np.asarray([fasttext_hash(spelling) for spelling in spellings], np.uint32).astype(np.int32).astype(np.int64)


class Hashing(NamedTuple):
    """Which n-grams of a text have rows: runs of up to `words` words, and the n-grams of `characters` letters of each word.

    `buckets` is the number of hashes. An n-gram without a row counts as a zero in the mean of a text; `skips`: it does not count
    (pruned models of fastText, `dictionary.cc`, `pushHash`).
    """

    words: int = 1
    characters: tuple[int, int] | None = None
    buckets: int = 0
    skips: bool = False


class KeptBuckets:
    """The buckets of hashed n-grams that have a row, (K,) in ascending order: the bound form of the table `hashed_ngrams`.

    `order` (K,), by default 0, 1, …, are their rows, counted from the last word's. `absent` are the ids of words that pruning
    has left without a row: their n-grams count, and runs contain them.
    """

    def __init__(
        self, hashing: Hashing, buckets: NDArray[np.int64], order: NDArray[np.int64] | None = None,
        absent: NDArray[np.int64] | None = None,
    ) -> None:
        self.hashing, self.kept, self.size = hashing, buckets, len(buckets)
        self.order = np.arange(len(buckets)) if order is None else order
        self.absent = np.zeros(0, np.int64) if absent is None else absent

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint; `restored` reads it."""
        words, characters, buckets, skips = self.hashing
        settings = np.array([words, *(characters or (0, 0)), buckets, int(skips)], np.int64)
        arrays = {"settings": settings, "kept": self.kept.astype(np.int64), "order": self.order.astype(np.int64)}
        return {**arrays, "absent": self.absent.astype(np.int64)} if len(self.absent) else arrays

    @classmethod
    def restored(cls, arrays: Mapping[str, NDArray[Any]]) -> KeptBuckets:
        """The table from its arrays; a `CorpusError` for any other arrays."""
        settings, numbers, order = (arrays.get(name, np.zeros(0, np.int64)) for name in ("settings", "kept", "order"))
        words, shortest, longest, buckets, skips = settings.tolist() if settings.shape == (5,) else (0,) * 5
        inside = len(numbers) == len(order) and (np.diff(numbers) > 0).all() and (np.sort(order) == np.arange(len(order))).all()
        if words < 1 or not inside or (len(numbers) and not 0 <= numbers[0] <= numbers[-1] < buckets):
            raise CorpusError("hashed n-grams: expected buckets in ascending order. The file is damaged: copy it again.")
        hashing = Hashing(words, (shortest, longest) if longest else None, buckets, bool(skips))
        return cls(hashing, numbers, order, arrays.get("absent"))


class Bag:
    """The rows of texts over a vocabulary whose words have the first rows of the table, before the buckets that are kept.

    Attributes:
        starts: (V + 1,), and rows: those of id i are `rows[starts[i] : starts[i + 1]]`: its own, and those of its n-grams.
        sizes: How many terms of the mean id i is, (V,).
        hashes: For runs of words, (V,).
        spoken: Whether id i is a word of a text, for runs (V,): [PAD] and [BOS] are not; [UNK] and `</s>`, the end, are.
    """

    def __init__(self, spellings: Sequence[str], table: KeptBuckets) -> None:
        self.hashing, self.first, self.table = table.hashing, len(spellings), table
        roles = count_roles(spellings)
        self.spoken = np.array([number >= roles or name in _SPOKEN for number, name in enumerate(spellings)], np.bool_)
        self.unknown = np.array([number < roles and name in _UNKNOWN for number, name in enumerate(spellings)], np.bool_)
        self.hashes = hashes_of_words(spellings)
        self.sizes = np.zeros(self.first, np.int64)
        starts, rows, absent = [0], [], set(table.absent.tolist())
        for number, spelling in enumerate(spellings):
            if number >= roles or spelling == _END:
                term_rows, size = self.of_word(spelling, None if number in absent else number)
                rows += term_rows
                self.sizes[number] = size
            starts.append(len(rows))
        self.starts, self.rows = np.array(starts, np.int64), np.array(rows, np.int64)
        self._unseen_words: dict[str, tuple[int, int, NDArray[np.int64]]] = {}

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """The row of each bucket, (buckets,), -1 for none."""
        bucket_rows = np.full(max(self.hashing.buckets, 1), -1, np.int32)
        bucket_rows[self.table.kept] = self.first + self.table.order
        return bucket_rows

    def _unseen(self, spelling: str) -> tuple[int, int, NDArray[np.int64]]:
        """The hash of a word without an id, how many terms it is, and its rows: remembered, for dev rows are read every epoch."""
        if spelling not in self._unseen_words:
            if len(self._unseen_words) >= _REMEMBERED:
                self._unseen_words.clear()
            rows, size = self.of_word(spelling, None)
            self._unseen_words[spelling] = int(hashes_of_words([spelling])[0]), size, np.array(rows, np.int64)
        return self._unseen_words[spelling]

    def of_word(self, spelling: str, row: int | None) -> tuple[list[int], int]:
        """The rows of a word, with its own `row` if it has one, and how many terms it is. The end of a text has no n-grams."""
        grams = self.hashing.characters
        buckets = [] if grams is None or spelling == _END else ngram_rows(spelling, grams, self.hashing.buckets, 0)
        rows = [] if row is None else [row]
        gram_rows = self.places[buckets]
        rows += gram_rows[gram_rows >= 0].tolist()
        return rows, len(rows) if self.hashing.skips else len(buckets) + (row is not None)

    def of_texts(
        self, tokens: NDArray[np.int64], owner: NDArray[np.int64], unseen: Mapping[int, str], *, runs: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The rows (M,) of texts, the text of each (M,), and the number of terms of each text.

        `tokens` (N,) are the words of all texts one after another, `owner` (N,) the number of each one's text, ascending.
        `unseen` spells words without an id, by their place among the tokens. Without `runs`, runs of words are no terms.
        """
        hashes, sizes = self.hashes[tokens], self.sizes[tokens]
        counts = self.starts[tokens + 1] - self.starts[tokens]
        ahead = np.cumsum(counts) - counts
        rows = [self.rows[np.arange(int(counts.sum())) + np.repeat(self.starts[tokens] - ahead, counts)]]
        owners = [np.repeat(owner, counts)]
        for index, spelling in unseen.items():
            hashes[index], sizes[index], term_rows = self._unseen(spelling)
            rows.append(term_rows)
            owners.append(np.full(len(term_rows), owner[index]))
        total = np.bincount(owner, sizes, int(owner.max(initial=-1)) + 1).astype(np.int64)
        for buckets, texts in run_buckets(hashes, owner, self.hashing) if runs else ():
            in_table = self.places[buckets].astype(np.int64)
            has = in_table >= 0
            rows.append(in_table[has])
            owners.append(texts[has])
            total += np.bincount(texts[has] if self.hashing.skips else texts, minlength=len(total))
        return np.concatenate(rows), np.concatenate(owners), total


_REMEMBERED = 100_000  # words without an id
_END = "</s>"
_UNKNOWN = frozenset({"[UNK]", "<unk>"})
_SPOKEN = _UNKNOWN | {_END}


def run_buckets(
    hashes: NDArray[np.int64], owner: NDArray[np.int64], hashing: Hashing
) -> Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The buckets of all runs of 2, 3, … words of texts, and the text of each, by the hashes of the words (n,) and their texts
    `owner` (n,); runs of one length stand together (`dictionary.cc`, `addWordNgrams`).

    h = h · 116049371 + next in 64 bits, then mod the buckets.
    """
    words = hashes.astype(np.uint64)  # a negative hash keeps its sign's bits, as in C
    value = words
    with np.errstate(over="ignore"):
        for size in range(1, min(hashing.words, len(words))):
            value = value[: len(words) - size] * _RUN + words[size:]
            within = owner[size:] == owner[: len(words) - size]
            yield (value[within] % np.uint64(hashing.buckets)).astype(np.int64), owner[size:][within]
