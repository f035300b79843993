"""What every bound source shares: its part of a store, plans that are remembered, and the addresses of random numbers.

A subclass of `BoundSource` gives `make_plan`, the rows of an epoch and their order; `read_main`, the fields of some
rows; and `companions`, what reads the other views of these rows. In a `BoundSplit`, rows are spans of running text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.corpus.sources.gather import Arrays, Gatherer
from cloze.corpus.sources.plan import AnyCut, Int64, PassageCuts, RowPlan, Split
from cloze.corpus.stores import languages as mixing
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.rows import Rows

#: Reads the fields of a companion of some items of a plan.
Companion = Callable[[Any, Int64, frozenset[str]], Arrays]
FEWEST = 20  # documents below which nothing is held out
_CHUNK = 1 << 20  # documents looked at together: bounds memory, not results


AnyPlan = TypeVar("AnyPlan")
Value = TypeVar("Value")


class Rebinds:
    """An object that is pickled as the call that made it: a data worker plans for itself, and receives no arrays."""

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        source = super().__new__(cls)
        source._made_with = args, kwargs
        return source

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebound, (type(self), *self._made_with)


def _rebound(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return kind(*args, **kwargs)


class BoundSource(Rebinds, ABC, Generic[AnyPlan]):
    """A source over one store, seed and entry: plans epochs and reads rows at random.

    One that reads shards also has `cuts(max_tokens)`, the rows of a shard, the same in every epoch (`len` of their `start` is
    their number), and `arranged(epoch, max_tokens, cuts, order)`, a plan whose item i is row `order[i]` of these.
    """

    source: Any
    store: Any

    def __init__(
        self, source: Any, store: Any, *, seed: int, entry: str, held_out: float = 0.0,
        subset: Literal["train", "held_out"] = "train",
    ) -> None:
        self.source, self.store, self.seed, self.entry = source, store, seed, entry
        self.held_out, self.subset = held_out, subset
        self._plans: OrderedDict[Any, AnyPlan] = OrderedDict()

    @property
    def layered(self) -> tuple[str, ...]:
        """The views whose tokens have the annotation layers of the store, as prefixes: "" for the rows themselves."""
        return ()

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        layers = {f"{view}{name}" for name in self.store.aligned for view in self.layered}
        fields: frozenset[str] = self.source.gives | layers
        return fields - (set() if self.store.languages else {"language"})

    def require(self, want: frozenset[str]) -> None:
        """Raise a `CorpusError` where the store lacks what some of these fields need."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens of this part of the corpus."""

    def plan(self, epoch: int, max_tokens: int) -> AnyPlan:
        """The rows of one epoch, each of at most `max_tokens` tokens of text: `length` without what edits add, such as
        [CLS]. A pure function of source, seed, entry and both."""
        return remember(self._plans, (epoch, max_tokens), lambda: self.make_plan(epoch, max_tokens))

    @abstractmethod
    def make_plan(self, epoch: int, max_tokens: int) -> AnyPlan:
        """A new plan; `plan` remembers it."""

    def shuffled(self, count: int, epoch: int) -> Int64:
        """The random order of the `count` units of an epoch."""
        return rng.permutation(count, self.seed, self.entry, "order", epoch)

    def shuffled_plan(
        self, epoch: int, max_tokens: int, cuts: AnyCut, languages: Callable[[], NDArray[np.integer]]
    ) -> RowPlan[AnyCut]:
        """A plan of these rows in random order; if the source smooths, with their `languages` (N,) at smoothed rates."""
        if self.source.smooth is None:
            return RowPlan(epoch, max_tokens, self.shuffled(len(cuts.start), epoch), cuts)
        drawn = mixing.resample(languages(), self.source.smooth, epoch, self.seed, self.entry)
        return RowPlan(epoch, max_tokens, drawn.order, cuts, drawn.repeat)

    def read(self, plan: AnyPlan, items: Int64, want: frozenset[str]) -> Rows:
        """The rows of some items (B places in the plan), in a block as wide as its longest row; see `read_main`.

        A companion is read if any of its fields is wanted.
        """
        arrays = self.read_main(plan, items, want)
        for view, companion in self.companions.items():
            names = fields_in(view, want)
            if names:
                arrays |= {f"{view}.{name}": value for name, value in companion(plan, items, names).items()}
        return Rows(arrays, checked=True)

    @abstractmethod
    def read_main(self, plan: AnyPlan, items: Int64, want: frozenset[str]) -> Arrays:
        """The fields of these rows without those of their companions."""

    @property
    def companions(self) -> Mapping[str, Companion]:
        """What reads each companion, by the name of its view."""
        return {}

    def draw(self, plan: Any, items: Int64) -> rng.Draw:
        """The random numbers of some items: addressed by seed, entry, epoch (0 if static) and `address`."""
        epoch = 0 if self.source.static else plan.epoch
        return rng.Draw(rng.row_keys(self.seed, self.entry, epoch, items=self.address(plan, items)))

    def address(self, plan: Any, items: Int64) -> Int64:
        """A number that identifies each item (B,): its row and, unless static, which repeat of the row it is."""
        address: Int64 = plan.address(items, self.source.static)
        return address


class BoundSplit(BoundSource[RowPlan[PassageCuts]]):
    """A source whose rows are spans of the documents of a `Split`."""

    split: Split
    _gather: Gatherer

    def open_split(self, documents: Int64, *, joined: bool = False, separator: int | None = None) -> None:
        """Take the rows from these documents; `joined`: a row may continue into the next one, behind a `separator`."""
        self.split = Split.of(self.store, documents, joined=joined, separated=separator is not None)
        self._gather = Gatherer(self.store, self.split, separator)

    @property
    def tokens(self) -> int:
        """Tokens of this part of the corpus."""
        return int((self.split.stop - self.split.start).sum())

    def arranged(self, epoch: int, max_tokens: int, cuts: PassageCuts, order: Int64) -> RowPlan[PassageCuts]:
        """A plan of the rows of a shard, whose item i is row `order[i]` of these."""
        return RowPlan(epoch, max_tokens, order, cuts)


def fields_in(view: str, names: Iterable[str]) -> frozenset[str]:
    """The fields of a view among full names, without its prefix."""
    return frozenset(name.removeprefix(f"{view}.") for name in names if name.startswith(f"{view}."))


def require_tokens(source: str, max_tokens: int, least: int, why: str) -> None:
    """Raise a `RecipeError` unless rows can hold `least` tokens of text; `why` says what is expected."""
    if max_tokens < least:
        raise RecipeError(f"{source}: a row can hold {max_tokens} tokens of text; {why} (is `length` too small?).")


def split_documents(count: int, held_out: float) -> dict[str, Int64]:
    """Document numbers of the parts `train` and `held_out`, the same for every seed, so that runs can be compared.

    A document is held out if its hashed number is below the share: at least two if there are twenty or more documents, so that
    each has another one for a random passage, and none if there are fewer.
    """
    if not 0.0 <= held_out < 1.0:
        raise RecipeError(f"held_out: {held_out} is not a share below 1.")
    documents = np.arange(count, dtype=np.int64)
    if held_out == 0.0 or count < FEWEST:
        return {"train": documents, "held_out": documents[:0]}
    chosen = np.zeros(count, dtype=np.bool_)
    outer: list[tuple[NDArray[np.float64], Int64]] = []  # the two lowest and highest places of every chunk
    for low in range(0, count, _CHUNK):
        here = documents[low : low + _CHUNK]
        position = rng.Draw(rng.row_keys("held_out", items=here)).uniform("place")
        chosen[here] = position < held_out
        ranked = position.argsort()
        ends = np.unique(np.concatenate([ranked[:2], ranked[-2:]]))
        outer.append((position[ends], here[ends]))
    places, numbers = (np.concatenate(part) for part in zip(*outer, strict=True))
    ranked = numbers[places.argsort()]
    chosen[ranked[:2]], chosen[ranked[-2:]] = True, False
    return {"train": documents[~chosen], "held_out": documents[chosen]}


def documents_of_running_text(store: Store, held_out: float, subset: Literal["train", "held_out"]) -> Int64:
    """The documents of a subset. Raises `CorpusError` if the store holds pairs of translations instead of running text."""
    if store.pairs:
        raise CorpusError(f"{store.path}: this store holds pairs of translations; read it with the source pairs.")
    return split_documents(store.documents, held_out)[subset]


def remember(cache: OrderedDict[Any, Value], key: Any, make: Callable[[], Value]) -> Value:
    """The cached value, or a new one; the cache holds two, since the end of a phase or an epoch needs the old and the new."""
    if key in cache:
        cache.move_to_end(key)
        return cache[key]
    value = cache[key] = make()
    if len(cache) > 2:
        cache.popitem(last=False)
    return value
