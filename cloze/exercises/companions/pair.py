"""Two segments from one passage, or one from the passage and one from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Natural, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.joined import with_companions
from cloze.registry import Given, register
from cloze.rng import Draw, UInt32, integers_below
from cloze.rows import Rows, columns_before, count_true

Ints = NDArray[np.int64]
Wrong = Literal["random_document", "swapped"]

#: Words whose lowest 0, 1, … 32 bits are set.
_LOWEST = ((np.uint64(1) << np.arange(33, dtype=np.uint64)) - np.uint64(1)).astype(np.uint32)


@register("edit", "pair")
@dataclass(frozen=True)
class Pair(Edit):
    """Cut a passage at a sentence boundary into A and B; with probability `rate` the pair is `wrong`.

    BERT (Devlin et al., 2019, §3.1; google-research/bert `create_pretraining_data.py`): B consists of sentences of another
    document (`random_document`), as many as A and B need to reach the target length of the passage; the cut is uniform over inner
    sentence boundaries; excess tokens are dropped one at a time from the longer segment, at its front or back with equal
    probability. `swapped` (ALBERT, Lan et al., 2020, §3.1): B stands before A. A list, such as `[swapped, random_document]` with
    rate 2/3 (StructBERT, Wang et al., 2020, §2.3), takes its members with equal probability.

    The label of a true pair is `right`; the ways to be wrong have the other numbers, 0, 1, … in order. A passage of one sentence
    gets a random B and the label of `random_document` if that is one of the ways; otherwise it stays one segment and has no
    target, unless `alone: random_document` gives it a random B and the label of the first way (ALBERT's code, which calls it
    swapped).

    With `rate: 0` every pair is true and there is no target; a fraction `single` of the passages, and those of one sentence, stay
    one segment; `single` is refused with `random_document`. `cut: half` (ELECTRA, Clark et al., 2020,
    `build_pretraining_dataset.py`): A takes sentences up to half of the length that the passage was cut for, and with
    probability 1/2 the sentence that crosses it; `trim: end` cuts both segments at their ends. `unit: sentence` (RoBERTa, Liu
    et al., 2019, §4.2): A and B are single sentences, the rest of the passage is dropped.

    Gives `parts` (B, 2, 2), start and stop of both segments, and, if `rate` > 0,
    `targets/<set>` (B,), one target per row; if rows may lack a target also `positions/<set>` (B,), -1 for such rows.

    The sentences that a random B displaces begin the next passage, as in BERT's code. The source `passages` therefore draws the
    cut, and which passages get a random B. With `cut: half` or `unit: sentence`, and from other sources, displaced sentences are
    left out of the epoch.

    Differs: with `training.packing`, a random B is not longer than the text that it displaces. After the sentence that crosses
    the half, all belong to B; ELECTRA's code still adds to A a later sentence that fits.
    """

    wrong: Wrong | Literal["none"] | list[Wrong] = "random_document"
    rate: Share = 0.5
    single: Share = 0.0
    set: str = "next"
    unit: Literal["segment", "sentence"] = "segment"
    alone: Literal["random_document"] | None = None
    cut: Literal["border", "half"] = "border"
    trim: Literal["longer", "end"] = "longer"
    right: Natural = 0
    limit: Given[int | None] = None
    _within: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.wrong, list) and (not self.wrong or len(frozenset(self.wrong)) < len(self.wrong)):
            raise RecipeError(f"pair: wrong lists each way to be wrong once, got {self.wrong}.")
        ways = len(self.ways)
        if not 0 <= self.right <= ways:
            raise RecipeError(f"pair: right is {self.right}; with {ways} ways to be wrong expected a number from 0 to {ways}.")
        if self.single and self.joins:
            raise RecipeError(
                f"pair: single is {self.single}: passages that stay one segment would get a B of another document.\n"
                "  Write rate: 0 or wrong: swapped, or leave single out."
            )

    @cached_property
    def ways(self) -> list[str]:
        """The ways to be wrong."""
        if self.rate <= 0 or self.wrong == "none":
            return []
        return list(self.wrong) if isinstance(self.wrong, list) else [self.wrong]

    @cached_property
    def labels(self) -> dict[str, int]:
        """The label of each way to be wrong."""
        numbers = (number for number in range(len(self.ways) + 1) if number != self.right)
        return dict(zip(self.ways, numbers, strict=True))

    @property
    def has_target(self) -> bool:
        """Whether the edit can make wrong pairs, and therefore gives a target."""
        return bool(self.ways)

    @cached_property
    def joins(self) -> tuple[str, ...]:
        """The companions whose text the row may contain."""
        return ("distractor",) if self.has_target and "random_document" in (*self.ways, self.alone) else ()

    @property
    def takes(self) -> frozenset[str]:
        names = frozenset({"tokens", "length", "sentence"})
        aim = {"target_length"} if self.unit == "segment" and (self.joins or self.cut == "half") else set[str]()
        return names | aim | {f"{c}.{name}" for c in self.joins for name in names}

    @property
    def displaces(self) -> float:
        """The share of the passages that get a random B, where the source can cut as this edit does."""
        cuts_alike = self.cut == "border" and self.unit == "segment" and not self.single
        return self.rate / len(self.ways) if cuts_alike and "random_document" in self.ways else 0.0

    @property
    def optional(self) -> frozenset[str]:
        return frozenset({"border", "apart"}) if self.displaces else frozenset()

    @property
    def gives(self) -> frozenset[str]:
        targets = {f"targets/{self.set}"} if self.has_target else set[str]()
        return frozenset({"parts"} | targets | ({f"positions/{self.set}"} if self.has_target and not self.joins else set()))

    def max_input(self, length: int) -> int:
        """Unchanged: the frame accounts for the length of a pair."""
        return length

    def for_length(self, length: int) -> Pair:
        """The same edit with at most `length` tokens in A and B together."""
        return replace(self, limit=length)

    def without_growth(self) -> Pair:
        """The same edit giving no more tokens than the passage has: packing plans rows by the passages' lengths."""
        return replace(self, _within=True)

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        length = rows["length"].astype(np.int64)
        coins = draw.bits("pair", 3)
        last = rows["sentence"][np.arange(rows.count), length - 1]
        begins, sizes = self._cut(rows, self._border(rows, coins[:, 0], last))
        alone = last == 0
        if self.single:
            stays = coins[:, 1] < self.single * 2.0**32
            sizes[:, 0], sizes[:, 1], alone = np.where(stays, length, sizes[:, 0]), np.where(stays, 0, sizes[:, 1]), alone | stays
        if not self.has_target:
            return rows.having(parts=self._trimmed(draw, length, begins, sizes))
        way = self._way(rows, draw, coins[:, 2])
        label = np.array([self.right, *self.labels.values()], np.int32).take(way)
        positions = {} if self.joins else {f"positions/{self.set}": np.where(alone, -1, 0).astype(np.int32)}
        pairs = rows.without("sentence")  # meaningless in a row of two texts
        if self.joins:
            random = self.labels.get("random_document", -1)
            label = np.where(alone, np.int32(self.labels[self.ways[0]] if random < 0 else random), label)
            elsewhere = alone if random < 0 else label == random
            sizes[:, 1] = np.where(elsewhere, _reach(rows, self._wanted(rows, length, sizes[:, 0])), sizes[:, 1])
            begins[:, 1] = np.where(elsewhere, rows["tokens"].shape[1], begins[:, 1])
            pairs = pairs.having_all(with_companions(pairs, *self.joins))
        if "swapped" in self.labels:
            turned = (label == self.labels["swapped"]) & ~alone
            begins[turned], sizes[turned] = begins[turned, ::-1], sizes[turned, ::-1]
        parts = self._trimmed(draw, length, begins, sizes)
        return pairs.having_all({**positions, "parts": parts, f"targets/{self.set}": label})

    def _way(self, rows: Rows, draw: Draw, bits: UInt32) -> Ints:
        """(B,) 0 for a true pair, else which of the `ways` it is wrong in, from 1."""
        if "apart" not in rows:
            way = (bits < self.rate * 2.0**32).astype(np.int64)
            return way * (1 + integers_below(draw.bits("pair.way"), len(self.ways))) if len(self.ways) > 1 else way
        random = 1 + self.ways.index("random_document")
        way = np.where(rows["apart"], random, 0)
        if len(self.ways) > 1:  # the rest of the rate falls on the other way, among pairs whose B is not random
            other = bits < (self.rate - self.displaces) / (1 - self.displaces) * 2.0**32
            way = np.where(other & ~rows["apart"], 3 - random, way)
        return way

    def _border(self, rows: Rows, bits: UInt32, last: NDArray[np.int32]) -> NDArray[np.int32]:
        """(B,) the sentence that B begins with."""
        if "border" in rows:
            return rows["border"]
        if self.cut == "border":
            return (1 + integers_below(bits, np.maximum(last, 1))).astype(np.int32)
        half = np.maximum(rows["target_length"].astype(np.int64) // 2, 1)
        beyond = rows["sentence"][np.arange(rows.count), np.minimum(half, rows["length"]) - 1]  # it reaches the half
        in_first = (beyond == 0) | (bits < 2**31) | (half > rows["length"])
        return beyond + in_first

    def _wanted(self, rows: Rows, length: Ints, size: Ints) -> Ints:
        """(B,) the tokens that a random B should have next to an A of `size`."""
        if self.unit == "sentence":
            return np.ones_like(length)
        target = rows["target_length"].astype(np.int64)
        return (np.minimum(target, length) if self._within else target) - size

    def _cut(self, rows: Rows, cut: NDArray[np.int32]) -> tuple[Ints, Ints]:
        """(B, 2) where A and B begin, and how many tokens they have, with B beginning at sentence `cut`."""
        sentence, length, first = rows["sentence"], rows["length"], cut[:, None]
        inside = columns_before(length, sentence.shape[1])
        begins = np.zeros((len(cut), 2), np.int64)
        sizes = np.empty((len(cut), 2), np.int64)
        begins[:, 1] = sizes[:, 0] = a = count_true((sentence < first) & inside)
        sizes[:, 1] = length - a
        if self.unit == "sentence":
            begins[:, 0] = count_true((sentence < first - 1) & inside)
            sizes[:, 0] = a - begins[:, 0]
            sizes[:, 1] = count_true((sentence <= first) & inside) - a
        return begins, sizes

    def _trimmed(self, draw: Draw, length: Ints, begins: Ints, sizes: Ints) -> Ints:
        """`parts` (B, 2, 2) after dropping tokens beyond the limit: from the longer segment (ties: from B), or at the ends."""
        parts = np.empty((len(length), 2, 2), np.int64)
        if self.limit is not None:
            limit = np.minimum(length, self.limit) if self._within else np.int64(self.limit)
            a, b = sizes[:, 0], sizes[:, 1]
            trimmed = np.empty_like(sizes)
            trimmed[:, 0] = np.minimum(a, limit if self.trim == "end" else np.maximum(limit - b, (limit + 1) // 2))
            trimmed[:, 1] = np.minimum(b, limit - trimmed[:, 0])
            tosses = sizes - trimmed
            if tosses.any():
                begins = begins if self.trim == "end" else begins + _heads(draw, tosses)
                sizes = trimmed
        parts[:, :, 0] = begins
        np.add(begins, sizes, out=parts[:, :, 1])
        return parts


def _reach(rows: Rows, minimum: Ints) -> Ints:
    """How many tokens of the distractor make whole sentences of at least `minimum` tokens (at least one sentence)."""
    length, sentence = rows["distractor.length"], rows["distractor.sentence"]
    index = np.maximum(np.minimum(minimum, length) - 1, 0)
    reached = sentence <= sentence[np.arange(len(length)), index][:, None]
    reached &= columns_before(length, sentence.shape[1])
    return count_true(reached)


def _heads(draw: Draw, tosses: Ints) -> Ints:
    """How many of `tosses` (B, 2) fair coins fall on heads: bits counted in whole words and one partial word."""
    words = int(tosses.max()) // 32 + 1
    bits = draw.bits("pair.trim", 2 * words).reshape(-1, words, 2)
    bits &= _LOWEST.take(tosses[:, None, :] - np.arange(0, 32 * words, 32)[:, None], mode="clip")
    return np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
