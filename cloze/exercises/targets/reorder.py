"""Cut a passage into segments, shuffle them, and ask for their order (ERNIE 2.0)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.noise.rearrange import OfOrdinaryTokens, by_key, sentences_of
from cloze.exercises.units.unit_request import exactly, keyed
from cloze.registry import register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows


@register("edit", "reorder")
@dataclass(frozen=True)
class Reorder(OfOrdinaryTokens):
    """Cut each passage at borders of sentences into 1 to `most` segments, each number equally likely, and put them into a random
    order (ERNIE 2.0, Sun et al., 2020). `targets/<set>` (B,) is the order among all orders of 1, 2, … `most` segments: with
    `most: 3` there are 1! + 2! + 3! = 9. A passage with fewer sentences has at most as many segments. Put it before `frame`.

    With `apart`, also gives `parts` (B, `most`, 2), start and stop of the segments in their new order: `{A} [SEP] {B} [SEP] {C}`
    are the first three. A segment that a row does not have is empty.
    """

    most: Count = 3
    set: str = "order"
    apart: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.most <= 6:
            raise RecipeError(f"reorder: most is {self.most}; expected 2 to 6 segments, which have 3 to 873 orders.")

    @property
    def classes(self) -> int:
        """The number of orders."""
        return sum(math.factorial(number) for number in range(1, self.most + 1))

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "sentence"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", "sentence", f"targets/{self.set}"} | ({"parts"} if self.apart else set()))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        free, sentence = sentences_of(rows)
        sentences = np.where(free.any(axis=1), sentence.max(axis=1), 0) + 1
        segments = 1 + integers_below(draw.bits("reorder.segments"), np.minimum(sentences, self.most))
        width = max(int(sentences.max(initial=1)) - 1, 1)
        borders = np.arange(width) < (sentences - 1)[:, None]  # border b stands after sentence b
        cut = exactly(segments - 1, borders, draw.bits("reorder.cut", width))
        before = np.concatenate([np.zeros((rows.count, 1), np.int64), np.cumsum(cut, axis=1)], axis=1)
        segment = np.take_along_axis(before, np.minimum(sentence, width), axis=1)
        exists = np.arange(self.most) < segments[:, None]
        order = np.argsort(keyed(exists, draw.bits("reorder", self.most)), axis=1)  # segment at each new place
        rank = np.argsort(order, axis=1)  # new place of each segment; missing ones come last
        earlier = np.cumsum([0, *(math.factorial(number) for number in range(1, self.most))])
        smaller = (order[:, None, :] < order[:, :, None]) & np.triu(np.ones((self.most, self.most), bool), 1)
        counts = (smaller & exists[:, None, :] & exists[:, :, None]).sum(axis=2)  # of each place, smaller segments after it
        left = np.maximum(segments[:, None] - 1 - np.arange(self.most), 0)
        factorials = np.array([math.factorial(number) for number in range(self.most + 1)])[left]
        target = earlier[segments - 1] + (counts * factorials).sum(axis=1)
        moved = by_key(rows, free, np.take_along_axis(rank, segment, axis=1))
        moved = moved.having_all({f"targets/{self.set}": target.astype(np.int32)})
        if not self.apart:
            return moved
        sizes = ((segment[:, None, :] == order[:, :, None]) & free[:, None, :]).sum(axis=2)  # a missing segment has no token
        stops = np.cumsum(sizes, axis=1)
        return moved.having_all({"parts": np.stack([stops - sizes, stops], axis=2)})
