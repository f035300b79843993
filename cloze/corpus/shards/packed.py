"""Rows of several passages each, over the shards of a store: every shard is packed by itself, once for all epochs.

The rows of each shard are then counted once and kept, like its passages (`sharded.py`), and an epoch is a plan of packed rows:
lanes and windows, a permutation that holds no array, and two integers as the cursor. What is held for a shard in use is which
passages share a row; for large shards that is mapped from the folder of plans, too. `batching/feed.py` reads such rows.

Differs: in an ordinary store, which passages share a row is decided again in every epoch; in a shard it is the same in every
epoch and for every seed. Masks still differ from epoch to epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.corpus.shards.planned import mapped
from cloze.corpus.shards.shard_plan import ShardPlan, by_shard
from cloze.corpus.shards.sharded import BoundShards
from cloze.corpus.sources.bound import Rebinds
from cloze.corpus.sources.plan import Int64, Packed
from cloze.rows import Rows

Several = tuple[Rows, rng.Draw, Int64]
_REMEMBERED = 4096  # held-out rows kept in memory, so that their shards are read once


class Packs(Protocol):
    """How passages are packed (`batching.packing.Packing`); plain values identify it."""

    @property
    def max_tokens(self) -> int: ...

    @property
    def width(self) -> int: ...

    def __call__(self, length: NDArray[Any]) -> Packed: ...


class PackedShards(Rebinds):
    """The packed rows of a source over a store of shards."""

    def __init__(self, shards: BoundShards, packing: Packs) -> None:
        self.shards, self.packing = shards, packing
        self._rows: Int64 | None = None
        self._held: dict[Any, Several] = {}

    def plan(self, epoch: int, max_tokens: int) -> ShardPlan:
        """The packed rows of one epoch; a pure function of seed, entry and epoch."""
        if self._rows is None:
            self._rows = self.shards.counted(self._folder, lambda number: len(self._packed_shard(number)))
        return self.shards.arrange(epoch, max_tokens, self._rows)

    def read(self, plan: ShardPlan, rows: Int64, want: frozenset[str]) -> Several:
        """The passages of some rows, row after row, their random numbers, and the row (0, 1, …) of each. Those of held-out rows
        are read once."""
        if self.shards.subset == "train":
            return self._read(plan, rows, want)
        key = plan.epoch, rows.tobytes(), want
        if key not in self._held:
            if sum(len(row_of) for _, _, row_of in self._held.values()) > _REMEMBERED:
                self._held.clear()
            self._held[key] = self._read(plan, rows, want)
        return self._held[key]

    def _read(self, plan: ShardPlan, rows: Int64, want: frozenset[str]) -> Several:
        self.shards.expect(plan, rows)
        shard, row = plan.locate(rows)
        members: list[Int64] = []
        places: list[Int64] = []
        for number, index in by_shard(shard):
            passages, of = self._packed_shard(number).members_of(row[index])
            members.append(passages)
            places.append(index[of])
        row_of = np.concatenate(places)
        order = np.argsort(row_of, kind="stable")  # row after row; the passages of a row stay in their order
        row_of, passage = row_of[order], np.concatenate(members)[order]
        where = shard[row_of], passage
        return self.shards.read_rows(plan, *where, want), self.shards.draw_rows(plan, *where), row_of

    def _packed_shard(self, number: int) -> Packed:
        """Which passages of a shard share a row. They are packed in a random order, since neighbours are often alike."""
        def make() -> Packed:
            folder = self._folder / self.shards.name(number)
            return mapped(folder, lambda: self._pack(number), Packed)

        packed: Packed = self.shards.kept(number, self.packing, make)
        return packed

    def _pack(self, number: int) -> Packed:
        length = self.shards.cuts(number, self.packing.max_tokens).length
        order = rng.permutation(len(length), "packed", self.shards.name(number))
        packed = self.packing(length[order])
        return Packed(packed.starts, order[packed.members].astype(np.int32))

    @property
    def _folder(self) -> Path:
        return self.shards.folder(self.packing.max_tokens, self.packing.width)
