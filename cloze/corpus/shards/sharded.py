"""Reads rows from the shards of a store: which row of which shard is item i of an epoch, computed and never stored.

The shards of an epoch are put into a random order and cut into windows of `WINDOW` shards. The rows of a window are permuted by
a function of (seed, entry, epoch, window) (`rng.shuffled`), and the windows follow one another: the sequence of all rows. It is
divided evenly among the lanes, one piece each, and item i of the epoch is the next row of lane i mod lanes. A step therefore
mixes rows of `lanes` windows, whatever the number of processes; and since the rows of a step are laid out lane by lane, each of R
processes reads the windows of lanes / R lanes alone.

What is held for a shard in use are the bounds of its passages. Those of large shards are written to the folder of plans once and
mapped into memory, which all processes of a machine share.

Differs: in an ordinary store, a share `short` of the passages gets new target lengths in every epoch; in a shard they are drawn
once. Distractors come from the passage's own shard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSet, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, Unpack

import numpy as np

from cloze import rng
from cloze.corpus.shards.planned import digest, mapped, numbers, write_numbers
from cloze.corpus.shards.shard_plan import ShardPlan, by_shard
from cloze.corpus.sources.bound import BoundSource
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Cut, Int64, PassageCuts
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError
from cloze.processes import processes, rank
from cloze.rows import Rows

WINDOW = 2  # shards whose rows are permuted together
_HELD_OUT = 8  # shards that the held-out rows come from
_REMEMBERED = 4096  # held-out rows kept in memory, so that their shards are read once

Value = TypeVar("Value")


class Shards(Protocol):
    """The store of several shards (`shards.ShardedStore`)."""

    path: Path

    @property
    def shards(self) -> Sequence[Any]: ...

    @property
    def plans(self) -> Path: ...

    @property
    def holders(self) -> MutableSet[Any]: ...

    @property
    def fetches(self) -> bool: ...

    def shard(self, number: int) -> Store: ...

    def expect(self, now: Sequence[int], next: Sequence[int]) -> None: ...


def bind_shards(
    source: Source, store: Shards, *, lanes: int, options: Mapping[str, Any], **address: Any
) -> BoundShards | BoundShardStreams:
    """A source over the shards of a store. Raises `CorpusError` if the source needs a store as a whole."""
    why = source.needs_whole
    if why:
        raise CorpusError(
            f"{store.path}: {why}, but this store has {len(store.shards)} shards.\n"
            f"  Write it as one store: cloze corpus join {store.path} --out STORE"
        )
    if source.lanes:
        return BoundShardStreams(source, store, lanes=int(options["lanes"]), **address)
    return BoundShards(source, store, lanes=lanes, options=options, **address)


class _Shards(BoundSource[ShardPlan]):
    """What both kinds of bound shards share: opened shards, and the number of rows in each."""

    source: Source
    store: Shards

    def __init__(self, source: Source, store: Shards, options: Mapping[str, Any], **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.options = dict(options)
        count = len(store.shards)
        few = min(count, _HELD_OUT)
        self.chosen = np.arange(count) if self.subset == "train" else np.arange(few) * count // few
        self._opened: dict[int, tuple[Any, dict[int, Any]]] = {}
        self._inside: tuple[Any, Int64, Int64] = (None, np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._rows: dict[int, Int64] = {}
        store.holders.add(self)

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        fields: frozenset[str] = self._bound(int(self.chosen[0])).gives
        return fields

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus, about."""
        share = self.held_out if self.subset == "held_out" else 1 - self.held_out
        return int(sum(self.store.shards[number].tokens for number in self.chosen.tolist()) * share)

    def _plan(
        self, epoch: int, max_tokens: int, rows: Int64, lanes: int, window: int, key: tuple[int | str, ...] | None
    ) -> ShardPlan:
        order = rng.permutation(len(rows), self.seed, self.entry, "shards", epoch)
        return ShardPlan(epoch, max_tokens, lanes, window, self.chosen[order], rows[order], key)

    def rows(self, max_tokens: int) -> Int64:
        """How many rows each chosen shard has."""
        if max_tokens not in self._rows:
            folder = self.folder(max_tokens)
            self._rows[max_tokens] = self.counted(folder, lambda number: self._number_of_rows(number, max_tokens))
        return self._rows[max_tokens]

    def counted(self, folder: Path, number_of: Callable[[int], int]) -> Int64:
        """A number for each chosen shard. Numbers that nobody has counted before are counted now, and kept for all."""
        counts = numbers(folder / "rows.json")
        names = [self.name(number) for number in self.chosen.tolist()]
        if not counts or any(name not in counts for name in names):
            counts = self._count(number_of, folder, names)
        rows = np.array([counts[name] for name in names], dtype=np.int64)
        if self.subset == "train" and not rows.sum():
            raise CorpusError(
                f"{self.store.path}: the corpus is smaller than one example.\n  Build the store from more text."
            )
        return rows

    def _count(self, number_of: Callable[[int], int], folder: Path, names: list[str]) -> dict[str, int]:
        """The rows of every chosen shard. Processes that start together begin at different shards and share what they find."""
        counts: dict[str, int] = {}
        first = rank() * len(names) // processes()
        for position in [*range(first, len(names)), *range(first)]:
            name, number = names[position], int(self.chosen[position])
            shard_counts = numbers(folder / f"{name}.json")
            if name not in shard_counts:
                shard_counts = {name: number_of(number)}
                write_numbers(folder / f"{name}.json", shard_counts)
                self._opened.pop(number, None)
            counts |= shard_counts
        write_numbers(folder / "rows.json", counts)
        return counts

    def _number_of_rows(self, number: int, max_tokens: int) -> int:
        return len(self._bound(number).cuts(max_tokens).start)

    def folder(self, *how: int) -> Path:
        """Where plans of this source are kept; `how` is the room, and the width of packed rows."""
        settings = {
            name: sorted(map(str, value)) if isinstance(value, (set, frozenset)) else value
            for name, value in vars(self.source).items()
        }
        what = [type(self.source).__name__, settings, self.options, self.held_out, self.subset, *how]
        return self.store.plans / digest(what)

    def name(self, number: int) -> str:
        """The name of a shard."""
        name: str = self.store.shards[number].name
        return name

    def kept(self, number: int, key: Any, make: Callable[[], Value]) -> Value:
        """What was made of a shard before, for as long as that is open."""
        self._bound(number)
        cache = self._opened[number][1]
        if key not in cache:
            cache[key] = make()
        entry: Value = cache[key]
        return entry

    def _bound(self, number: int) -> Any:
        """The source over a shard. Random numbers of different shards have different addresses."""
        if number not in self._opened:
            shard = self.store.shard(number)
            entry = f"{self.entry}/{self.name(number)}"
            self._opened[number] = (
                self.source.bind(
                    shard, seed=self.seed, entry=entry, held_out=self.held_out, subset=self.subset, **self.options
                ), {},
            )
        return self._opened[number][0]

    def let_go(self) -> None:
        """Close all shards, since there is no room for another one; what is read next opens them again."""
        self._opened.clear()

    def expect(self, plan: ShardPlan, items: Int64) -> None:
        """Begin a read of these items: close shards of windows that all lanes have left, and name those needed now and next."""
        count = len(plan.borders)
        lane, window = np.divmod(np.unique(items % plan.lanes * count + plan.windows(items)), count)
        before, lanes, windows = self._inside
        if before is plan:
            stay = ~np.isin(lanes, lane)
            lanes, windows = np.append(lane, lanes[stay]), np.append(window, windows[stay])
        else:
            lanes, windows = lane, window
        self._inside = plan, lanes, windows
        shards_in_use = set(plan.shards_of(np.unique(windows)))
        for number in [number for number in self._opened if number not in shards_in_use]:
            del self._opened[number]
        if self.store.fetches:
            self.store.expect(plan.shards_of(np.unique(window)), plan.coming(items))


class BoundShards(_Shards):
    """A source over a store of shards, for one seed and entry."""

    def __init__(
        self, source: Source, store: Shards, *, lanes: int, options: Mapping[str, Any], **address: Unpack[Address]
    ) -> None:
        super().__init__(source, store, options, **address)
        self.in_lanes = lanes
        self._held: dict[Any, Rows] = {}

    def make_plan(self, epoch: int, max_tokens: int) -> ShardPlan:
        """The rows of one epoch."""
        return self.arrange(epoch, max_tokens, self.rows(max_tokens))

    def arrange(self, epoch: int, max_tokens: int, rows: Int64) -> ShardPlan:
        """One epoch of shards with so many rows (S,), mixed in windows and lanes."""
        return self._plan(epoch, max_tokens, rows, self.in_lanes, WINDOW, (self.seed, self.entry))

    def by_lane(self, items: Int64) -> Int64:
        """The items of a step lane by lane, so that neighbours come from the same shards."""
        return items[np.argsort(items % self.in_lanes, kind="stable")]

    def read_main(self, plan: ShardPlan, items: Int64, want: frozenset[str]) -> Arrays:
        """The fields of the source, those of its companions included. Held-out rows are read once."""
        if self.subset == "train":
            return dict(self._read(plan, items, want))
        key = plan.epoch, plan.max_tokens, items.tobytes(), want
        if key not in self._held:
            if sum(rows.count for rows in self._held.values()) > _REMEMBERED:
                self._held.clear()
            self._held[key] = self._read(plan, items, want)
        return dict(self._held[key])

    def _read(self, plan: ShardPlan, items: Int64, want: frozenset[str]) -> Rows:
        self.expect(plan, items)
        return self.read_rows(plan, *plan.locate(items), want)

    def read_rows(self, plan: ShardPlan, shard: Int64, row: Int64, want: frozenset[str]) -> Rows:
        """These rows (B,) of these shards (B,), with the fields of the source."""
        blocks, places = [], []
        for number, index in by_shard(shard):
            bound, inner = self._inner(plan, number, row[index])
            blocks.append(bound.read(inner, np.arange(len(index)), want))
            places.append(index)
        if len(blocks) == 1:
            return blocks[0]
        return Rows.concatenate(blocks).take(np.argsort(np.concatenate(places), kind="stable"))

    def draw(self, plan: ShardPlan, items: Int64) -> rng.Draw:
        """The random numbers of some items: by seed, entry, shard, epoch (0 if static) and row."""
        return self.draw_rows(plan, *plan.locate(items))

    def draw_rows(self, plan: ShardPlan, shard: Int64, row: Int64) -> rng.Draw:
        """The random numbers of these rows (B,) of these shards (B,)."""
        keys = np.empty(len(row), dtype=np.uint64)
        for number, index in by_shard(shard):
            bound, inner = self._inner(plan, number, row[index])
            keys[index] = bound.draw(inner, np.arange(len(index))).keys
        return rng.Draw(keys)

    def _inner(self, plan: ShardPlan, number: int, row: Int64) -> tuple[Any, Any]:
        """The source over a shard, and the plan whose items are these rows of it."""
        bound = self._bound(number)
        return bound, bound.arranged(plan.epoch, plan.max_tokens, self.cuts(number, plan.max_tokens), row)

    def cuts(self, number: int, max_tokens: int) -> Any:
        """The bounds of the rows of a shard."""
        folder = self.folder(max_tokens) / self.name(number)
        return self.kept(number, max_tokens, lambda: mapped(folder, lambda: self._bound(number).cuts(max_tokens), _cuts_of))


class BoundShardStreams(_Shards):
    """Streams over a store of shards: shard after shard, in a random order; every shard begins with an empty memory."""

    def __init__(self, source: Source, store: Shards, *, lanes: int, **address: Unpack[Address]) -> None:
        super().__init__(source, store, {"lanes": lanes}, **address)
        self.lanes = lanes

    def make_plan(self, epoch: int, max_tokens: int) -> ShardPlan:
        """The rows of one epoch."""
        return self._plan(epoch, max_tokens, self.rows(max_tokens), 1, 1, None)

    def read_main(self, plan: ShardPlan, items: Int64, want: frozenset[str]) -> Arrays:
        """The fields of the source, those of its companions included."""
        self.expect(plan, items)
        shard, row = plan.locate(items)
        blocks = [
            (index, bound.read(bound.plan(plan.epoch, plan.max_tokens), row[index], want))
            for number, index in by_shard(shard) for bound in [self._bound(number)]
        ]
        rows = Rows.concatenate([block for _, block in blocks])
        return dict(rows.take(np.argsort(np.concatenate([index for index, _ in blocks]))))

    def draw(self, plan: ShardPlan, items: Int64) -> rng.Draw:
        """The random numbers of some items: by seed, entry, shard, epoch and item."""
        keys = np.empty(len(items), dtype=np.uint64)
        shard, row = plan.locate(items)
        for number, index in by_shard(shard):
            bound = self._bound(number)
            keys[index] = bound.draw(bound.plan(plan.epoch, plan.max_tokens), row[index]).keys
        return rng.Draw(keys)

    def _number_of_rows(self, number: int, max_tokens: int) -> int:
        return len(self._bound(number).plan(0, max_tokens))


def _cuts_of(**columns: Any) -> Cut:
    return PassageCuts(**{"separator_first": None, **columns}) if "stop" in columns else Cut(**columns)
