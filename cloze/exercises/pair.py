"""Two segments from one passage, or one from the passage and one from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.registry import Given, register
from cloze.rng import Draw, below
from cloze.rows import Rows

Ints = NDArray[np.int64]


@register("edit", "pair")
@dataclass(frozen=True)
class Pair:
    """Cut a passage at a sentence border into A and B; with odds `rate`, B comes from another document instead.

    BERT (Devlin et al., 2019, §3.1; google-research/bert `create_pretraining_data.py`): the cut is uniform over inner
    sentence borders; a passage of one sentence always takes a random B, so more than half of all answers may be 1; what
    exceeds the room is dropped one token at a time from the longer segment, at its front or back with equal odds.
    With `rate: 0` (ELECTRA, Clark et al., 2020) B is never wrong and nothing is asked; a share `single` of the passages,
    and those of one sentence, stay one segment.

    Gives `parts` (B, 2, 2), start and stop of both segments in tokens laid side by side, and, if `rate` > 0,
    `targets/<set>` (B,), an answer of the whole row: 0 for the true continuation, 1 for a random one.

    Differs: the sentences of a passage that a random B displaces are not put back for the next passage.
    """

    wrong: Literal["random_document", "none"] = "random_document"
    rate: float = 0.5
    single: float = 0.0
    set: str = "next"
    limit: Given[int | None] = None
    _within: bool = False

    @property
    def asks(self) -> bool:
        """Whether the edit can give a wrong B, and therefore asks which it was."""
        return self.wrong != "none" and self.rate > 0

    @property
    def takes(self) -> frozenset[str]:
        own = frozenset({"tokens", "length", "sentence"})
        return own | {"distractor.tokens", "distractor.length", "distractor.sentence"} if self.asks else own

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"parts", f"targets/{self.set}"} if self.asks else {"parts"})

    def room(self, length: int) -> int:
        """A pair adds and removes nothing that the frame does not count."""
        return length

    def at(self, length: int) -> Pair:
        """The same edit with at most `length` tokens in A and B together."""
        return replace(self, limit=length)

    def within(self) -> Pair:
        """The same edit giving no more tokens than the passage has: packing plans rows by the passages' lengths."""
        return replace(self, _within=True)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        length = rows["length"].astype(np.int64)
        sentence = rows["sentence"]
        count, width = sentence.shape
        coins = draw.bits("pair", 3)
        last = sentence[np.arange(count), length - 1]
        cut = 1 + below(coins[:, 0], np.maximum(last, 1)).astype(np.int32)
        before = sentence < cut[:, None]
        before &= np.arange(width, dtype=np.int32) < rows["length"][:, None]
        a = np.count_nonzero(before, axis=1)
        alone = last == 0
        if self.single:
            stays = coins[:, 1] < self.single * 2.0**32
            a, alone = np.where(stays, length, a), alone | stays
        if not self.asks:
            return rows.having(parts=self._trimmed(draw, length, a, length - a, a))
        wrong = alone | (coins[:, 2] < self.rate * 2.0**32)
        elsewhere = _reach(rows, np.minimum(length, self.limit or length) - a)
        b, start = np.where(wrong, elsewhere, length - a), np.where(wrong, width, a)
        wide = {
            name: np.concatenate([rows[name], rows[f"distractor.{name}"]], axis=1)
            for name in ("tokens", "word_start")
            if name in rows and f"distractor.{name}" in rows
        }
        parts = self._trimmed(draw, length, a, b, start)
        return rows.having_all({**wide, "parts": parts, f"targets/{self.set}": wrong.astype(np.int32)})

    def _trimmed(self, draw: Draw, length: Ints, a: Ints, b: Ints, start: Ints) -> Ints:
        """`parts` (B, 2, 2) after dropping what exceeds the limit from the longer segment (ties: from B)."""
        sizes = np.stack([a, b], axis=1)
        begins = np.stack([np.zeros_like(a), start], axis=1)
        if self.limit is not None:
            limit = np.minimum(length, self.limit) if self._within else np.int64(self.limit)
            over = a + b > limit
            if over.any():
                short_a = np.minimum(a, np.maximum(limit - b, (limit + 1) // 2))
                kept = np.where(over[:, None], np.stack([short_a, limit - short_a], axis=1), sizes)
                begins += _heads(draw, sizes - kept)
                sizes = kept
        return np.stack([begins, begins + sizes], axis=2)


def _reach(rows: Rows, wanted: Ints) -> Ints:
    """How many tokens of the distractor make whole sentences of at least `wanted` tokens (at least one sentence)."""
    length = rows["distractor.length"].astype(np.int64)
    sentence = rows["distractor.sentence"]
    index = np.clip(wanted - 1, 0, np.maximum(length - 1, 0))
    chosen = sentence[np.arange(len(length)), index]
    reached = sentence <= chosen[:, None]
    reached &= np.arange(sentence.shape[1], dtype=np.int32) < rows["distractor.length"][:, None]
    return np.count_nonzero(reached, axis=1)


def _heads(draw: Draw, tosses: Ints) -> Ints:
    """How many of `tosses` (B, 2) fair coins fall on heads: bits counted in whole words and one partial word."""
    words = int(tosses.max()) // 32 + 1
    bits = draw.bits("pair.trim", 2 * words).reshape(-1, words, 2)
    left = np.clip(tosses[:, None, :] - 32 * np.arange(words)[:, None], 0, 32)
    masks = ((np.int64(1) << left) - 1).astype(np.uint32)
    return np.bitwise_count(bits & masks).sum(axis=1, dtype=np.int64)
