"""Triples that are not known: the head or the tail of a fact replaced by another entity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Natural
from cloze.errors import CorpusError, RecipeError
from cloze.rng import Draw

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]

#: The names of the random numbers: the side of each negative, the one side of `one_side`, the entity.
SIDE, COIN, ENTITY = "negatives/side", "negatives/coin", "negatives/entity"


@dataclass(frozen=True, kw_only=True)
class Negatives:
    """How many wrong triples go with each fact, and how they are made.

    either: so many with another head or another tail, each drawn by `side`.
    head, tail: so many with another head, and so many with another tail.
    one_side: so many, all with another head or all with another tail; the side is drawn once for each fact, by `side`.
    side: the probability of another head is 1/2 ("uniform"), or by relation tph / (tph + hpt), with the mean number of tails per
      head and of heads per tail ("bernoulli"; Wang et al., 2014, §4.2): of parents, the more numerous children are not replaced.
    known: "exclude" draws from the entities that do not make a known fact of the training part, uniformly; "include" from all
      others than the right one.
    """

    either: Natural = 0
    head: Natural = 0
    tail: Natural = 0
    one_side: Natural = 0
    side: Literal["uniform", "bernoulli"] = "uniform"
    known: Literal["exclude", "include"] = "exclude"

    @property
    def count(self) -> int:
        """How many there are for each fact."""
        return self.either + self.head + self.tail + self.one_side


class Group(NamedTuple):
    """The known entities on one side of facts, by what stands on the other side and the relation; N facts in G groups.

    Group g has `start[g + 1] - start[g]` entities; `less[start[g] + j]` is the j-th of them in ascending order minus j, which is
    how many unknown entities are below it. `of` (N,) is the group of each fact.
    """

    start: Int64
    less: Int32
    of: Int64

    @classmethod
    def by(cls, fixed: Int64, relation: Int64, varied: Int64, relations: int) -> Group:
        """The groups of facts (N,) with the same `fixed` entity and relation, and the `varied` entities in them."""
        key = fixed * relations + relation
        order = np.lexsort((varied, key))
        sorted_key = key[order]
        begins = np.flatnonzero(np.append(True, sorted_key[1:] != sorted_key[:-1])) if len(key) else np.zeros(0, np.int64)
        start = np.append(begins, len(key)).astype(np.int64)
        group = np.repeat(np.arange(len(begins)), np.diff(start))
        of = np.empty(len(key), np.int64)
        of[order] = group
        less = varied[order] - (np.arange(len(key)) - start[group])
        return cls(start, less.astype(np.int32), of)

    def unknown(self, group: Int64, bits: NDArray[np.uint32], entities: int) -> Int64:
        """For every group and random number (M,) one of the entities 0 … entities - 1 that is not in the group, uniformly."""
        left = entities - (self.start[group + 1] - self.start[group])
        nth = (bits.astype(np.int64) * left) >> 32
        keys = np.repeat(np.arange(len(self.start) - 1), np.diff(self.start)) * entities + self.less
        return nth + np.searchsorted(keys, group * entities + nth, "right") - self.start[group]


class Corruption:
    """Draws negatives of the facts (N, 3) of a store, by their numbers."""

    def __init__(self, negatives: Negatives, triples: NDArray[np.integer], *, entities: int, relations: int, path: str) -> None:
        """`triples` hold the numbers of entities, and of relations from 0. Raises `CorpusError` if a fact leaves no entity."""
        if negatives.side not in ("uniform", "bernoulli") or negatives.known not in ("exclude", "include"):
            raise RecipeError("triples.negatives: expected side uniform or bernoulli, and known exclude or include.")
        if negatives.side == "bernoulli" and (negatives.head or negatives.tail) and not (negatives.either or negatives.one_side):
            raise RecipeError(
                "triples.negatives: side: bernoulli draws the side of either and of one_side, but only head and tail are "
                "written, whose side is fixed.\n  Leave out side, or write either in place of head and tail."
            )
        self.negatives, self.entities = negatives, entities
        head, relation, tail = (triples[:, column].astype(np.int64) for column in range(3))
        self.head, self.tail = head, tail
        self.heads = Group.by(tail, relation, head, relations)  # what makes a fact with this tail and relation
        self.tails = Group.by(head, relation, tail, relations)
        self.rate = head_rates(head, relation, tail, relations, negatives.side)[relation]
        fewest = entities - max(int(np.diff(group.start).max(initial=0)) for group in (self.heads, self.tails))
        if negatives.count and (entities < 2 or (negatives.known == "exclude" and fewest < 1)):
            raise CorpusError(
                f"{path}: every entity makes a known fact with the relation and the other entity of some triple, so no wrong "
                "triple is left.\n  Write negatives: {known: include}, or give more entities."
            )

    def sides(self, facts: Int64, draw: Draw) -> NDArray[np.bool_]:
        """Whether each negative of some facts (B,) replaces the head, (B, K)."""
        n = self.negatives
        parts = [
            draw.uniform(SIDE, n.either) < self.rate[facts][:, None] if n.either else None,
            np.ones((len(facts), n.head), np.bool_), np.zeros((len(facts), n.tail), np.bool_),
            np.repeat((draw.uniform(COIN) < self.rate[facts])[:, None], n.one_side, axis=1),
        ]
        return np.concatenate([part for part in parts if part is not None], axis=1)

    def entities_for(self, facts: Int64, draw: Draw) -> tuple[NDArray[np.bool_], Int64]:
        """The negatives of some facts (B,): whether each replaces the head, (B, K), and the entity that it puts there."""
        replaces_head, count = self.sides(facts, draw), self.negatives.count
        bits = draw.bits(ENTITY, count)
        fact = np.repeat(facts, count).reshape(len(facts), count)
        entities = np.empty(fact.shape, np.int64)
        for group, original, chosen in ((self.heads, self.head, replaces_head), (self.tails, self.tail, ~replaces_head)):
            if self.negatives.known == "exclude":
                entities[chosen] = group.unknown(group.of[fact[chosen]], bits[chosen], self.entities)
            else:
                nth = (bits[chosen].astype(np.int64) * (self.entities - 1)) >> 32
                entities[chosen] = nth + (nth >= original[fact[chosen]])
        return replaces_head, entities


def head_rates(head: Int64, relation: Int64, tail: Int64, relations: int, side: str) -> NDArray[np.float64]:
    """The probability that a negative replaces the head, by relation, (relations,)."""
    if side == "uniform" or not len(head):
        return np.full(relations, 0.5)
    entities = int(max(head.max(), tail.max())) + 1
    heads, tails = (
        np.bincount(np.unique(relation * entities + entity) // entities, minlength=relations).astype(np.float64)
        for entity in (head, tail)
    )
    # tph = facts / heads and hpt = facts / tails.
    return np.divide(tails, heads + tails, out=np.full(relations, 0.5), where=heads + tails > 0)
