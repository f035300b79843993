"""Which mixture entry a step, or a row, takes: drawn from a shuffled deck. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.rng import permutation

_LARGEST_ROUND = 100_000


class Deck:
    """Entries in exact proportion to their odds within every round, the round shuffled by (seed, round).

    How often an entry has come up is therefore a pure function of the step; no state is saved.

    >>> deck = Deck({"a": 2, "b": 1}, seed=0)
    >>> sorted(deck.entry(step) for step in range(3))
    ['a', 'a', 'b']
    """

    def __init__(self, odds: Mapping[str, float], *, seed: int) -> None:
        if not odds or min(odds.values()) < 0 or not sum(odds.values()) > 0:
            raise RecipeError(f"mixture: odds {dict(odds)}: expected numbers of at least 0, one of them above 0.")
        self.names = list(odds)
        self.seed = seed
        self.cards = _cards(list(odds.values()))
        self._round = -1
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)

    def entry(self, step: int) -> str:
        """The entry that the step with this number (from 0) takes."""
        if len(self.names) == 1:
            return self.names[0]
        round_, position = divmod(step, len(self.cards))
        if round_ != self._round:
            self._order = permutation(len(self.cards), self.seed, "deck", round_)
            self._round = round_
        return self.names[int(self.cards[self._order[position]])]

    def entries(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each of many steps or rows, ascending: the entry's index in `names`, and how often it came before."""
        size, kinds = len(self.cards), len(self.names)
        round_of = numbers // size
        first, last = int(round_of[0]), int(round_of[-1])
        rounds = range(first, last + 1)
        cards = np.concatenate([self.cards[permutation(size, self.seed, "deck", round_)] for round_ in rounds])
        # (cards, kinds): how often each entry has come up to each card, this one included.
        seen = np.cumsum(cards[:, None] == np.arange(kinds), axis=0)
        positions = numbers - first * size
        entry = cards[positions]
        before = first * np.bincount(self.cards, minlength=kinds)
        return entry, before[entry] + seen[positions, entry] - 1


def _cards(odds: list[float]) -> NDArray[np.int64]:
    """One card per unit of odds, in the smallest whole numbers that keep the proportions."""
    exact = [Fraction(value).limit_denominator(10_000) for value in odds]
    scale = lcm(*(value.denominator for value in exact))
    integers = [int(value * scale) for value in exact]
    common = gcd(*integers)
    counts = [value // common for value in integers]
    if sum(counts) > _LARGEST_ROUND:  # odds such as sizes in tokens: as exact as this many cards allow
        counts = [max(round(count * _LARGEST_ROUND / sum(counts)), int(count > 0)) for count in counts]
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)
