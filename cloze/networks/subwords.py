"""fastText's hashed n-grams: which rows of a table stand for a word, and for a run of words. numpy only, no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

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
    found = []
    for start in range(len(bounded)):
        for size in range(shortest, longest + 1):
            stop = start + size
            if stop <= len(bounded) and not (size == 1 and (start == 0 or stop == len(bounded))):
                found.append(bounded[start:stop])
    return found


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


def run_rows(hashes: NDArray[np.int64], longest: int, buckets: int, first: int) -> NDArray[np.int64]:
    """The rows of all runs of 2 … `longest` words, from the words' hashes (n,) (`dictionary.cc`, `addWordNgrams`).

    h = h · 116049371 + next in 64 bits, then mod `buckets`. Runs of one length stand together.
    """
    words = hashes.astype(np.uint64)  # a negative hash keeps its sign's bits, as in C
    value, found = words, []
    with np.errstate(over="ignore"):
        for size in range(1, min(longest, len(words))):
            value = value[: len(words) - size] * _RUN + words[size:]
            found.append((value % np.uint64(buckets)).astype(np.int64) + first)
    return np.concatenate(found) if found else np.zeros(0, np.int64)
