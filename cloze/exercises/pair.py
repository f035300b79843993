"""Two segments from one passage, or one from the passage and one from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.beside import beside
from cloze.registry import Given, register
from cloze.rng import Draw, below
from cloze.rows import Rows, before, counted

Ints = NDArray[np.int64]
Wrong = Literal["random_document", "swapped"]

#: Words whose lowest 0, 1, … 32 bits are set.
_LOWEST = ((np.uint64(1) << np.arange(33, dtype=np.uint64)) - np.uint64(1)).astype(np.uint32)


@register("edit", "pair")
@dataclass(frozen=True)
class Pair:
    """Cut a passage at a sentence border into A and B; with odds `rate`, the pair is `wrong`.

    BERT (Devlin et al., 2019, §3.1; google-research/bert `create_pretraining_data.py`): B comes from another document
    (`random_document`); the cut is uniform over inner sentence borders; a passage of one sentence always takes a random B, so
    more than half of all answers may be 1; what exceeds the room is dropped one token at a time from the longer segment, at
    its front or back with equal odds. `swapped` (ALBERT, Lan et al., 2020, §3.1): B stands before A; a passage of one sentence
    stays one segment and is not asked. A list, such as `[swapped, random_document]` with rate 2/3 (StructBERT, Wang et al.,
    2020, §2.3), takes its members with equal odds; the answer is 1, 2, … in its order, 0 for a pair as it stands.

    With `rate: 0` (ELECTRA, Clark et al., 2020) nothing is ever wrong and nothing is asked; a share `single` of the passages,
    and those of one sentence, stay one segment. `unit: sentence` (RoBERTa, Liu et al., 2019, §4.2): A and B are single
    sentences, what else the passage holds is left out.

    Gives `parts` (B, 2, 2), start and stop of both segments in tokens laid side by side, and, if `rate` > 0,
    `targets/<set>` (B,), an answer of the whole row; without `random_document` also `places/<set>` (B,), -1 for a row that is
    not asked.

    Differs: the sentences of a passage that a random B displaces are not put back for the next passage. ALBERT's code takes
    a random B for a passage of one sentence and calls it swapped.
    """

    wrong: Wrong | Literal["none"] | list[Wrong] = "random_document"
    rate: Share = 0.5
    single: Share = 0.0
    set: str = "next"
    unit: Literal["segment", "sentence"] = "segment"
    limit: Given[int | None] = None
    _within: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.wrong, list) and (not self.wrong or len(frozenset(self.wrong)) < len(self.wrong)):
            raise RecipeError(f"pair: wrong lists ways to be wrong, each once, got {self.wrong}.")

    @cached_property
    def ways(self) -> list[str]:
        """The ways to be wrong; their answers are 1, 2, …"""
        if self.rate <= 0 or self.wrong == "none":
            return []
        return list(self.wrong) if isinstance(self.wrong, list) else [self.wrong]

    @property
    def asks(self) -> bool:
        """Whether the edit can give a wrong pair, and therefore asks which it was."""
        return bool(self.ways)

    @cached_property
    def joins(self) -> tuple[str, ...]:
        """The companions whose text the row may hold."""
        return ("distractor",) if "random_document" in self.ways else ()

    @property
    def takes(self) -> frozenset[str]:
        own = frozenset({"tokens", "length", "sentence"})
        return own | {f"{c}.{name}" for c in self.joins for name in own}

    @property
    def gives(self) -> frozenset[str]:
        asked = {f"targets/{self.set}"} if self.asks else set[str]()
        return frozenset({"parts"} | asked | ({f"places/{self.set}"} if self.asks and not self.joins else set()))

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
        width = rows["tokens"].shape[1]
        coins = draw.bits("pair", 3)
        last = rows["sentence"][np.arange(rows.count), length - 1]
        begins, sizes = self._cut(rows, 1 + below(coins[:, 0], np.maximum(last, 1)).astype(np.int32))
        alone = last == 0
        if self.single:
            stays = coins[:, 1] < self.single * 2.0**32
            sizes[:, 0], sizes[:, 1], alone = np.where(stays, length, sizes[:, 0]), np.where(stays, 0, sizes[:, 1]), alone | stays
        if not self.asks:
            return rows.having(parts=self._trimmed(draw, length, begins, sizes))
        way = (coins[:, 2] < self.rate * 2.0**32).astype(np.int64)
        if len(self.ways) > 1:
            way *= 1 + below(draw.bits("pair.way"), len(self.ways))
        answers = {name: number for number, name in enumerate(self.ways, 1)}
        asked = {} if self.joins else {f"places/{self.set}": np.where(alone, -1, 0).astype(np.int32)}
        kept = rows.without("sentence")  # of no use in a row of two texts
        if self.joins:
            way = np.where(alone, answers["random_document"], way)
            elsewhere = way == answers["random_document"]
            wanted = np.minimum(length, self.limit or length) - sizes[:, 0] if self.unit == "segment" else np.ones_like(length)
            sizes[:, 1] = np.where(elsewhere, _reach(rows, wanted), sizes[:, 1])
            begins[:, 1] = np.where(elsewhere, width, begins[:, 1])
            kept = kept.having_all(beside(kept, *self.joins))
        if "swapped" in answers:
            turned = (way == answers["swapped"]) & ~alone
            begins[turned], sizes[turned] = begins[turned, ::-1], sizes[turned, ::-1]
        parts = self._trimmed(draw, length, begins, sizes)
        return kept.having_all({**asked, "parts": parts, f"targets/{self.set}": way.astype(np.int32)})

    def _cut(self, rows: Rows, cut: NDArray[np.int32]) -> tuple[Ints, Ints]:
        """(B, 2) where A and B begin, and how many tokens they have, with B beginning at sentence `cut`."""
        sentence, length, first = rows["sentence"], rows["length"], cut[:, None]
        inside = before(length, sentence.shape[1])
        begins = np.zeros((len(cut), 2), np.int64)
        sizes = np.empty((len(cut), 2), np.int64)
        begins[:, 1] = sizes[:, 0] = a = counted((sentence < first) & inside)
        sizes[:, 1] = length - a
        if self.unit == "sentence":
            begins[:, 0] = counted((sentence < first - 1) & inside)
            sizes[:, 0] = a - begins[:, 0]
            sizes[:, 1] = counted((sentence <= first) & inside) - a
        return begins, sizes

    def _trimmed(self, draw: Draw, length: Ints, begins: Ints, sizes: Ints) -> Ints:
        """`parts` (B, 2, 2) after dropping what exceeds the limit from the longer segment (ties: from B)."""
        parts = np.empty((len(length), 2, 2), np.int64)
        if self.limit is not None:
            limit = np.minimum(length, self.limit) if self._within else np.int64(self.limit)
            a, b = sizes[:, 0], sizes[:, 1]
            kept = np.empty_like(sizes)
            kept[:, 0] = np.minimum(a, np.maximum(limit - b, (limit + 1) // 2))  # a where nothing is too much
            kept[:, 1] = np.minimum(b, limit - kept[:, 0])
            tosses = sizes - kept
            if tosses.any():
                begins = begins + _heads(draw, tosses)
                sizes = kept
        parts[:, :, 0] = begins
        np.add(begins, sizes, out=parts[:, :, 1])
        return parts


def _reach(rows: Rows, wanted: Ints) -> Ints:
    """How many tokens of the distractor make whole sentences of at least `wanted` tokens (at least one sentence)."""
    length, sentence = rows["distractor.length"], rows["distractor.sentence"]
    index = np.maximum(np.minimum(wanted, length) - 1, 0)
    reached = sentence <= sentence[np.arange(len(length)), index][:, None]
    reached &= before(length, sentence.shape[1])
    return counted(reached)


def _heads(draw: Draw, tosses: Ints) -> Ints:
    """How many of `tosses` (B, 2) fair coins fall on heads: bits counted in whole words and one partial word."""
    words = int(tosses.max()) // 32 + 1
    bits = draw.bits("pair.trim", 2 * words).reshape(-1, words, 2)
    bits &= _LOWEST.take(tosses[:, None, :] - np.arange(0, 32 * words, 32)[:, None], mode="clip")
    return np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
