"""Held-out documents that are also in the training text: a loss that is measured on them says what was memorised."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.store import Store

_COMPARED = 1 << 28  # tokens of the training text whose documents are compared
_LEAST_SHARE = 0.01  # share of the held-out tokens

Int64 = NDArray[np.int64]


class Copies(NamedTuple):
    """How many of the `documents` held out, and of their `tokens`, are copied in the training text."""

    copied: int
    documents: int
    copied_tokens: int
    tokens: int

    @property
    def share(self) -> float:
        """The share of the held-out tokens."""
        return self.copied_tokens / max(self.tokens, 1)

    @property
    def note(self) -> str | None:
        """A line about them; None if they are less than a hundredth of the tokens, such as lines that any text repeats."""
        if self.share < _LEAST_SHARE:
            return None
        return (
            f"note: {self.copied:,} of {self.documents:,} held-out documents ({self.share:.0%} of their tokens) are also in the "
            "training text, so held-out losses are too good.\n  cloze corpus check lists repeated documents: give it all files, "
            "and remove them."
        )


def count_copies(held_out: Store, held_documents: Int64, training: Store, documents: Int64) -> Copies:
    """Count the held-out documents with the tokens of a training document, token by token. Documents without tokens are ignored.

    Both stores have the same tokenizer. Of a training text of more than 2^28 tokens only the first are compared.
    """
    held_spans, spans = _Spans.of(held_out, held_documents), _Spans.of(training, documents)
    spans = spans.take(spans.start < _COMPARED)
    spans = spans.take(np.isin(spans.size, held_spans.size))
    spans = spans.take(np.isin(spans.outline(training), held_spans.outline(held_out)))
    digests = {_digest(training, start, size) for start, size in zip(spans.start.tolist(), spans.size.tolist(), strict=True)}
    sizes = [
        size for start, size in zip(held_spans.start.tolist(), held_spans.size.tolist(), strict=True)
        if digests and _digest(held_out, start, size) in digests
    ]
    return Copies(len(sizes), len(held_spans.size), sum(sizes), int(held_spans.size.sum()))


class _Spans(NamedTuple):
    """The first token and the number of tokens of documents."""

    start: Int64
    size: Int64

    @classmethod
    def of(cls, store: Store, documents: Int64) -> _Spans:
        bounds = store.document_starts
        spans = cls(bounds[documents], bounds[documents + 1] - bounds[documents])
        return spans.take(spans.size > 0)

    def take(self, chosen: NDArray[np.bool_]) -> _Spans:
        return _Spans(self.start[chosen], self.size[chosen])

    def outline(self, store: Store) -> NDArray[np.uint64]:
        """A number of each document that depends on its size, its first token, its last and the one halfway."""
        outline = self.size.astype(np.uint64)
        for positions in (self.start, self.start + self.size // 2, self.start + self.size - 1):
            outline = outline * np.uint64(0x9E3779B97F4A7C15) + store.tokens[positions].astype(np.uint64)
        return outline


def _digest(store: Store, start: int, size: int) -> bytes:
    return hashlib.blake2b(store.tokens[start : start + size].astype("<u4").tobytes(), digest_size=16).digest()
