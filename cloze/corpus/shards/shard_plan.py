"""The order of one epoch over the shards of a store: which row of which shard is item i. `sharded.py` says how they are mixed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.corpus.sources.plan import Int64


@dataclass(frozen=True)
class ShardPlan:
    """One epoch: `shards` in their order, the rows of each, and in how many lanes and windows they are read.

    `key` is the address of the permutation of every window, or None if rows keep the order of their shard.
    """

    epoch: int
    max_tokens: int
    lanes: int
    window: int
    shards: Int64       # (S,) numbers in the store, in the order of the epoch
    rows: Int64         # (S,) rows of each
    key: tuple[int | str, ...] | None
    ends: Int64 = field(init=False)     # (S + 1,) rows before each shard, and all of them
    borders: Int64 = field(init=False)  # (W + 1,) rows before each window, and all of them
    keys: NDArray[np.uint64] = field(init=False)  # (W,)
    _last: list[tuple[Int64, tuple[Int64, Int64]]] = field(init=False, repr=False, compare=False)  # items, and where they are

    def __post_init__(self) -> None:
        ends = np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)
        borders = np.append(ends[:-1:self.window], ends[-1])
        address = self.key or ()
        object.__setattr__(self, "ends", ends)
        object.__setattr__(self, "borders", borders)
        none = np.zeros(0, np.int64)
        object.__setattr__(self, "_last", [(none, (none, none))])
        object.__setattr__(self, "keys", rng.row_keys(*address, "window", self.epoch, items=np.arange(len(borders) - 1)))

    def __len__(self) -> int:
        return int(self.ends[-1])

    def places(self, items: Int64) -> Int64:
        """Where items are in the sequence of all rows."""
        share, more = divmod(len(self), self.lanes)  # the first `more` lanes have one row more
        lane = items % self.lanes
        return lane * share + np.minimum(lane, more) + items // self.lanes

    def windows(self, items: Int64) -> Int64:
        """The windows that items are in."""
        return self._windows(self.places(items))

    def _windows(self, positions: Int64) -> Int64:
        return np.searchsorted(self.borders, positions, "right") - 1

    def locate(self, items: Int64) -> tuple[Int64, Int64]:
        """The shard of every item, by its number in the store, and its row there.

        The last answer is kept: a block is read first, and then its random numbers are drawn.
        """
        last_items, location = self._last[0]
        if not np.array_equal(items, last_items):
            location = self._located(items)
            self._last[0] = items.copy(), location
        return location

    def _located(self, items: Int64) -> tuple[Int64, Int64]:
        position = self.places(items)
        window = self._windows(position)
        if self.key is not None:
            low = self.borders[window]
            position = low + rng.shuffled(position - low, self.borders[window + 1] - low, self.keys[window])
        turn = np.searchsorted(self.ends, position, "right") - 1
        return self.shards[turn], position - self.ends[turn]

    def shards_of(self, windows: Int64) -> list[int]:
        """The numbers of the shards of these windows."""
        turns = windows[:, None] * self.window + np.arange(self.window)
        return np.unique(self.shards[turns[turns < len(self.shards)]]).tolist()

    def coming(self, items: Int64) -> list[int]:
        """The shards of the windows that the lanes of these items enter next, of lanes that have read half of their window."""
        position = self.places(items)
        window = self._windows(position)
        late = 2 * (position - self.borders[window]) >= self.borders[window + 1] - self.borders[window]
        following = np.unique(window[late] + 1)
        return self.shards_of(following[following < len(self.borders) - 1])


def by_shard(shard: Int64) -> Iterator[tuple[int, Int64]]:
    """Every shard of a block, and which of the block are its own, in their order."""
    order = np.argsort(shard, kind="stable")
    for index in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1):
        if len(index):
            yield int(shard[index[0]]), index
