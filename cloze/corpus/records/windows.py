"""Which part of each text of its record a row contains: all of it, as much as fits, or one of several windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.sources.plan import Cut, ranges
from cloze.errors import CorpusError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


class TextParts(NamedTuple):
    """The parts of texts that rows contain, (B, P) each: the first token of the part, and the number of tokens."""

    first: Int64
    kept: Int64

    def columns(self, tokens: NDArray[np.integer], text: int) -> Int64:
        """The columns (B, K) in the row, before it is framed, of tokens (B, K) of a text; -1 for a token that the row does not
        contain."""
        position = tokens.astype(np.int64) - self.first[:, text, None]
        inside = (tokens >= 0) & (position >= 0) & (position < self.kept[:, text, None])
        return np.where(inside, position + self.kept[:, :text].sum(1, keepdims=True), -1)


@dataclass(frozen=True)
class RecordCuts(Cut):
    """The rows of an epoch: for each row its record (its place among the records of the part), (N,), and the parts of texts, (N,
    P)."""

    record: Int64
    shown: TextParts


def cut(lengths: Int64, max_tokens: int) -> tuple[Int64, TextParts]:
    """One row per record, for texts of these lengths (N, P); the longest text loses its end."""
    return np.arange(len(lengths)), TextParts(np.zeros_like(lengths), shares(lengths, max_tokens))


def windows(lengths: Int64, max_tokens: int, stride: int) -> tuple[Int64, TextParts]:
    """The windows over the last text of records (N, P): the record of each, and the parts that it contains.

    Each window begins `stride` tokens after the previous one, until one reaches the end of the text (Devlin et al., 2019;
    `doc_stride` in google-research/bert, run_squad.py), so every token is in at least one window. If a record needs several
    windows, its other texts get at most half of the row and lose their ends.

    Windows that would not overlap are a `CorpusError`: tokens between them would never be read, and a span that crosses a border
    would be in none (huggingface/transformers#2548).
    """
    prefixes, last = lengths[:, :-1], lengths[:, -1]
    fits = lengths.sum(1) <= max_tokens
    sizes = np.where(fits[:, None], prefixes, shares(prefixes, max_tokens // 2) if prefixes.shape[1] else prefixes)
    left = max_tokens - sizes.sum(1)
    several = last > left
    if (several & (left <= stride)).any():
        least = int(left[several].min())
        raise CorpusError(
            f"records.stride: windows start {stride} tokens apart, but only {least} tokens of a long text fit into a row of "
            f"{max_tokens}: windows would not overlap.\n"
            f"  Give a smaller stride, such as --set corpus.stride={max(least // 2, 1)}, or longer rows."
        )
    count = 1 + -(-np.maximum(last - left, 0) // stride)
    record = np.repeat(np.arange(len(lengths)), count)
    offset = ranges(count) * stride
    first, window_sizes = np.zeros((len(record), lengths.shape[1]), np.int64), lengths[record]
    first[:, -1] = offset
    window_sizes[:, :-1], window_sizes[:, -1] = sizes[record], np.minimum(last[record] - offset, left[record])
    return record, TextParts(first, window_sizes)


def shares(lengths: Int64, max_tokens: int) -> Int64:
    """How many tokens of each text (B, P) fit into a row of `max_tokens` tokens: the longest text is cut first, in a tie
    the later one."""
    count = lengths.shape[1]
    ascending = np.sort(lengths, axis=1)
    before = np.cumsum(ascending, axis=1) - ascending
    level = ((max_tokens - before) // (count - np.arange(count))).max(axis=1, keepdims=True)
    sizes = np.minimum(lengths, np.maximum(level, 0))
    spare = np.where(lengths.sum(1) > max_tokens, max_tokens - sizes.sum(1), 0)
    longer = lengths > sizes
    sizes += longer & (np.cumsum(longer, axis=1) <= spare[:, None])
    return np.where(lengths.sum(1, keepdims=True) > max_tokens, sizes, lengths)
