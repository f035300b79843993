"""Several entries in one batch: each row is assigned to an entry (`mixing: row`). Pure numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.batching.deck import Deck
from cloze.batching.feed import Cursor, Feed, MicroArrays
from cloze.errors import RecipeError
from cloze.rows import Rows

Ints = NDArray[np.int64]

#: New lengths or odds start a new series of epochs of every entry: the counts that determine an entry's next row change, and no
#: example may be repeated with the same randomness.
_SERIES = 1 << 20


class MixedFeed:
    """Feeds whose rows share batches: row n of the mixture belongs to the entry that a shuffled deck assigns.

    It has the interface of a `Feed` with one endless epoch: the cursor's row is the number of rows so far, which determines how
    many of them each entry has had. A row has no targets for objectives that its entry lacks.
    """

    packing = False

    def __init__(
        self, feeds: Mapping[str, Feed], odds: Mapping[str, float], *, seed: int, now: Mapping[str, float] | None = None
    ) -> None:
        self.feeds = dict(feeds)
        spread = [name for name, feed in self.feeds.items() if feed.spreads]
        if spread:
            raise RecipeError(
                f"mixture.{spread[0]}: several rows are made of one record, which cannot be mixed row by row.\n"
                "  Mix whole steps: mixing: step."
            )
        self.odds = {name: float(odds[name]) for name in feeds}
        self.now = dict(self.odds if now is None else now)
        self.seed = seed
        self.deck = Deck(self.now, seed=seed)
        self._first = next(iter(self.feeds.values()))
        self._ends: dict[tuple[str, int], list[int]] = {}
        self._empty: dict[str, Rows] = {}

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return self._first.length

    def for_length(self, length: int) -> MixedFeed:
        """The same mixture for rows of another length."""
        feeds = {name: feed.for_length(length) for name, feed in self.feeds.items()}
        return MixedFeed(feeds, self.odds, seed=self.seed, now=self.now)

    def with_odds(self, odds: Mapping[str, float]) -> MixedFeed:
        """The same feeds with the recipe's odds, changed by these; this object itself if nothing changes."""
        now = {name: float(odds.get(name, usual)) for name, usual in self.odds.items()}
        return self if now == self.now else MixedFeed(self.feeds, self.odds, seed=self.seed, now=now)

    @property
    def is_scheduled(self) -> bool:
        """Whether an exercise follows a schedule, so that a row depends on when it is made."""
        return any(feed.is_scheduled for feed in self.feeds.values())

    def when(self, share: float) -> MixedFeed:
        """The same mixture at a share of the budget."""
        if not self.is_scheduled:
            return self
        mixture = object.__new__(MixedFeed)
        mixture.__dict__.update(self.__dict__, feeds={name: feed.when(share) for name, feed in self.feeds.items()})
        return mixture

    def row_count(self, epoch: int) -> int:
        """The rows of the first epochs of all entries together, which count as one epoch of the mixture."""
        return sum(feed.row_count(0) for feed in self.feeds.values())

    def advance(self, cursor: Cursor, count: int) -> tuple[list[tuple[int, Ints]], Cursor]:
        """The next `count` rows as one stretch, and the next cursor."""
        return [(cursor.epoch, np.arange(cursor.row, cursor.row + count))], Cursor(cursor.epoch, cursor.row + count)

    def widths(self, stretches: Sequence[tuple[int, Ints]]) -> None:
        """Each makes one row."""

    def micro_batches(self, stretches: Sequence[tuple[int, Ints]], sizes: Sequence[int]) -> list[MicroArrays]:
        """The rows of `stretches`, cut into micro-batches of `sizes` rows laid out as arrays."""
        # By row of the mixture (N,): `series`, `number`, `entry`, `nth` of its entry. Rows are made entry by
        # entry; `places` says where each belongs, and `back` (N,) restores the order.
        series = np.concatenate([np.full(len(rows), series) for series, rows in stretches])
        number = np.concatenate([rows for _, rows in stretches])
        entry, nth = self.deck.entries(number)
        blocks, places = [], []
        for kind, (name, feed) in enumerate(self.feeds.items()):
            indices = np.flatnonzero(entry == kind)
            if not len(indices):  # it has no row here, but its fields must be present, empty
                blocks.append(self._nothing(name, feed))
                places.append(indices)
                continue
            epoch, row = self._addresses(name, feed, series[indices], nth[indices])
            for epoch_number in np.unique(epoch):
                chosen = epoch == epoch_number
                block, _ = feed.examples(int(epoch_number), row[chosen])
                blocks.append(block)
                places.append(indices[chosen])
        back = np.argsort(np.concatenate(places), kind="stable")
        return self._first.laid_out(Rows.concatenate_mixed(blocks).take(back), None, sizes)

    def _nothing(self, name: str, feed: Feed) -> Rows:
        """A block of no rows with all the fields of an entry."""
        if name not in self._empty:
            self._empty[name] = feed.examples(0, np.zeros(1, np.int64))[0].take(slice(0, 0))
        return self._empty[name]

    def _addresses(self, name: str, feed: Feed, series: Ints, nth: Ints) -> tuple[Ints, Ints]:
        """(epoch, row in it) of the nth rows of an entry: its epochs follow one another."""
        epoch, row = np.empty_like(nth), np.empty_like(nth)
        for series_number in np.unique(series):
            chosen = series == series_number
            ends = self._ends.setdefault((name, int(series_number)), [0])
            while ends[-1] <= int(nth[chosen].max()):
                ends.append(ends[-1] + feed.row_count(int(series_number) * _SERIES + len(ends) - 1))
            passed = np.searchsorted(ends, nth[chosen], side="right") - 1
            epoch[chosen] = int(series_number) * _SERIES + passed
            row[chosen] = nth[chosen] - np.asarray(ends)[passed]
        return epoch, row

    def __getstate__(self) -> dict[str, Any]:
        return {"feeds": self.feeds, "odds": self.odds, "seed": self.seed, "now": self.now}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
