"""Two segments from one passage, or one from the passage and one from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.registry import register
from cloze.rng import Draw
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
    limit: int | None = None

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

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        length = rows["length"].astype(np.int64)
        sentence = rows["sentence"]
        count, width = sentence.shape
        last = sentence[np.arange(count), length - 1].astype(np.int64)
        cut = 1 + draw.integers("pair.cut", np.maximum(last, 1))
        valid = np.arange(width) < length[:, None]
        a = np.count_nonzero((sentence < cut[:, None]) & valid, axis=1)
        alone = last == 0
        if self.single:
            stays = draw.uniform("pair.single") < self.single
            a, alone = np.where(stays, length, a), alone | stays
        b, start = length - a, a
        if not self.asks:
            return self._trimmed(rows, draw, a, b, start)
        wrong = alone | (draw.uniform("pair.wrong") < self.rate)
        elsewhere = _reach(rows, np.minimum(length, self.limit or length) - a)
        wide = {
            name: np.concatenate([rows[name], rows[f"distractor.{name}"]], axis=1)
            for name in ("tokens", "word_start")
            if name in rows and f"distractor.{name}" in rows
        }
        paired = self._trimmed(rows, draw, a, np.where(wrong, elsewhere, b), np.where(wrong, width, start))
        return paired.having_all({**wide, f"targets/{self.set}": wrong.astype(np.int32)})

    def _trimmed(self, rows: Rows, draw: Draw, a: Ints, b: Ints, start: Ints) -> Rows:
        """`parts` after dropping what exceeds the limit from the longer segment (ties: from B)."""
        front_a = front_b = np.zeros_like(a)
        if self.limit is not None and bool((a + b > self.limit).any()):
            over = a + b > self.limit
            short_a = np.where(over, np.minimum(a, np.maximum(self.limit - b, (self.limit + 1) // 2)), a)
            short_b = np.where(over, self.limit - short_a, b)
            front_a = _heads(draw, "pair.trim_a", a - short_a)
            front_b = _heads(draw, "pair.trim_b", b - short_b)
            a, b = short_a, short_b
        parts = np.stack([front_a, front_a + a, start + front_b, start + front_b + b], axis=1)
        return rows.having(parts=parts.reshape(-1, 2, 2))


def _reach(rows: Rows, wanted: Ints) -> Ints:
    """How many tokens of the distractor make whole sentences of at least `wanted` tokens (at least one sentence)."""
    length = rows["distractor.length"].astype(np.int64)
    sentence = rows["distractor.sentence"]
    index = np.clip(wanted - 1, 0, np.maximum(length - 1, 0))
    chosen = sentence[np.arange(len(length)), index]
    valid = np.arange(sentence.shape[1]) < length[:, None]
    return np.count_nonzero((sentence <= chosen[:, None]) & valid, axis=1)


def _heads(draw: Draw, name: str, tosses: Ints) -> Ints:
    """How many of `tosses` fair coins fall on heads, per row: bits counted in whole words and one partial word."""
    words = int(tosses.max()) // 32 + 1
    bits = draw.bits(name, words)
    left = np.clip(tosses[:, None] - 32 * np.arange(words), 0, 32).astype(np.uint64)
    masks = ((np.uint64(1) << left) - np.uint64(1)).astype(np.uint32)
    return np.bitwise_count(bits & masks).sum(axis=1).astype(np.int64)
