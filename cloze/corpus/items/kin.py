"""Other records of the same picture, and records of other pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CorpusError, counted
from cloze.rng import Draw

if TYPE_CHECKING:
    from cloze.corpus.items.item_store import StoredItems

Int64 = NDArray[np.int64]


class Kin:
    """Records sorted by their `pictures` (N,), so that companions are drawn uniformly with one random number.

    `groups` (P,) is the film of each picture.
    """

    def __init__(self, pictures: Int64, groups: Int64) -> None:
        self.pictures, self.groups = pictures, groups
        self.order = np.argsort(pictures, kind="stable")
        ordered = pictures[self.order]
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(rank))
        self.first = np.searchsorted(ordered, pictures, side="left")
        self.stop = np.searchsorted(ordered, pictures, side="right")
        self.place = rank - self.first

    def sibling(self, records: Int64, draw: Draw) -> Int64:
        """Another record of the same picture; see `require_siblings`."""
        first, size = self.first[records], self.stop[records] - self.first[records]
        step = 1 + draw.integers("records/sibling", np.maximum(size - 1, 1))
        return self.order[first + (self.place[records] + step) % size]

    def distractor(self, records: Int64, draw: Draw) -> Int64:
        """A record of another picture, or the record itself if all show the same."""
        stop, other_count = self.stop[records], len(self.order) - (self.stop[records] - self.first[records])
        step = draw.integers("records/distractor", np.maximum(other_count, 1))
        return np.where(other_count > 0, self.order[(stop + step) % len(self.order)], records)

    def next(self, records: Int64, draw: Draw) -> Int64:
        """The first record of the next picture of the same film, or -1 if there is none; nothing is drawn."""
        stop = self.stop[records]
        after = self.order[np.minimum(stop, len(self.order) - 1)]
        here, next_picture = self.pictures[records], self.pictures[after]
        return np.where((next_picture == here + 1) & (self.groups[here] == self.groups[next_picture]), after, -1)


def require_siblings(items: StoredItems) -> None:
    """Raise a `CorpusError` if a picture has one record alone."""
    counts = np.bincount(items.pictures[items.pictures >= 0], minlength=len(items.keys))
    alone = np.flatnonzero(counts == 1)
    if len(alone):
        raise CorpusError(
            f"{items.folder}: {len(alone)} of {counted(len(counts), 'picture')} have one caption, such as "
            f"{items.keys[alone[0]]!r}; the recipe pairs two different captions of a picture, since the same caption twice "
            "would show every hidden word.\n"
            "  Leave these pictures out of the captions, or take a recipe that reads one caption, such as visualbert-one-caption."
        )
