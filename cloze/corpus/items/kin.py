"""Other records of the same picture, and records of other pictures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloze.rng import Draw

Int64 = NDArray[np.int64]


class Kin:
    """Records (N,) sorted by their pictures (N,), so that both kinds of companions are drawn uniformly with one random number."""

    def __init__(self, pictures: Int64) -> None:
        self.order = np.argsort(pictures, kind="stable")
        ordered = pictures[self.order]
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(rank))
        self.first = np.searchsorted(ordered, pictures, side="left")
        self.stop = np.searchsorted(ordered, pictures, side="right")
        self.place = rank - self.first

    def sibling(self, records: Int64, draw: Draw) -> Int64:
        """Another record of the same picture, or the record itself if there is none."""
        first, size = self.first[records], self.stop[records] - self.first[records]
        step = 1 + draw.integers("records/sibling", np.maximum(size - 1, 1))
        return self.order[first + (self.place[records] + step) % size]

    def distractor(self, records: Int64, draw: Draw) -> Int64:
        """A record of another picture, or the record itself if all show the same."""
        stop, others = self.stop[records], len(self.order) - (self.stop[records] - self.first[records])
        step = draw.integers("records/distractor", np.maximum(others, 1))
        return np.where(others > 0, self.order[(stop + step) % len(self.order)], records)
