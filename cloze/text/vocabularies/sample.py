"""A deterministic sample of a stream of texts, and the alphabet of what was kept."""

from __future__ import annotations

import heapq
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import normalizers

from cloze.rng import fold, mix64

_CODE_POINTS = 0x110000


class TextSample(NamedTuple):
    """Texts in their original order, and their share of the stream."""

    texts: list[str]
    kept_bytes: int
    total_bytes: int


def sample_texts(texts: Iterable[str], budget_bytes: int, seed: int) -> TextSample:
    """Keep the texts with the smallest keys, up to `budget_bytes` of UTF-8, in one pass and in memory of that size.

    The key of a text is a hash of `seed` and its number in the stream, so the same stream gives the same sample. A text
    larger than the whole budget is cut to it.
    """
    start = fold("text sample", seed)
    heap: list[tuple[int, int, int, str]] = []
    kept_bytes = total = 0
    limit = 1 << 64
    for number, text in enumerate(texts):
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        total += size
        key = mix64(start + number)
        if key >= limit:
            continue
        if size > budget_bytes:
            text = text.encode("utf-8", "surrogatepass")[:budget_bytes].decode("utf-8", "ignore")
            size = budget_bytes
        heapq.heappush(heap, (-key, number, size, text))
        kept_bytes += size
        while kept_bytes > budget_bytes:
            dropped = heapq.heappop(heap)
            kept_bytes -= dropped[2]
            limit = -dropped[0]
    return TextSample([entry[3] for entry in sorted(heap, key=lambda entry: entry[1])], kept_bytes, total)


@dataclass(frozen=True)
class Alphabet:
    """How often each character occurs in normalised texts, inside a word (not at its start), and last in a word.

    count, inside, last: (0x110000,) int64 by code point. White space is not counted. A punctuation mark is a word, hence last.
    """

    count: NDArray[np.int64]
    inside: NDArray[np.int64]
    last: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str], normaliser: normalizers.Normalizer | None) -> Alphabet:
        """Count the characters of texts. Words are cut as BERT cuts them: at white space and punctuation."""
        count = np.zeros(_CODE_POINTS, dtype=np.int64)
        inside = np.zeros(_CODE_POINTS, dtype=np.int64)
        last = np.zeros(_CODE_POINTS, dtype=np.int64)
        breaks = np.zeros(_CODE_POINTS, dtype=np.bool_)
        classified = np.zeros(_CODE_POINTS, dtype=np.bool_)
        for block in blocks_of(texts):
            normal = normaliser.normalize_str(block) if normaliser is not None else block
            points = np.frombuffer(normal.encode("utf-32-le", "replace"), dtype="<u4").astype(np.int64)
            seen = np.bincount(points, minlength=_CODE_POINTS)
            count += seen
            new = np.flatnonzero((seen > 0) & ~classified)
            classified[new] = True
            breaks[new] = [_breaks(chr(point)) for point in new.tolist()]
            apart = breaks[points]
            inner = points[1:][~(apart[1:] | apart[:-1])]
            inside += np.bincount(inner, minlength=_CODE_POINTS)
            ends = apart | np.append(apart[1:], True)
            last += np.bincount(points[ends], minlength=_CODE_POINTS)
        count[[point for point in np.flatnonzero(count).tolist() if chr(point).isspace()]] = 0
        return cls(count, inside, last)

    def chosen(self, coverage: float, most: int) -> tuple[list[str], list[str]]:
        """The most frequent characters that cover a share `coverage` of the text, at most `most`; and those seen inside words.

        Both sorted by code point; ties in frequency go to the lower code point.
        """
        points = np.flatnonzero(self.count)
        order = points[np.lexsort((points, -self.count[points]))]
        share = np.cumsum(self.count[order]) / max(1, int(self.count.sum()))
        frequent = np.sort(order[: min(most, 1 + int(np.searchsorted(share, coverage)))])
        return [chr(p) for p in frequent.tolist()], [chr(p) for p in frequent[self.inside[frequent] > 0].tolist()]

    def final(self, characters: Iterable[str]) -> list[str]:
        """The given characters that end a word somewhere."""
        return [character for character in characters if self.last[ord(character)]]


def blocks_of(texts: Iterable[str], size: int = 1 << 20) -> Iterator[str]:
    """The texts joined by line ends into blocks of about `size` characters."""
    held: list[str] = []
    length = 0
    for text in texts:
        held.append(text)
        length += len(text) + 1
        if length >= size:
            yield "\n".join(held)
            held, length = [], 0
    if held:
        yield "\n".join(held)


def _breaks(character: str) -> bool:
    """Whether BERT's pre-tokenizer ends a word here: at white space, punctuation and ASCII symbols."""
    if character.isspace():
        return True
    if character.isascii():
        return not character.isalnum() and character.isprintable()
    return unicodedata.category(character).startswith("P")
