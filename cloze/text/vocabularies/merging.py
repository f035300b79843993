"""The merges of a byte-pair vocabulary on whole arrays: many words at once, with merges left out at random (BPE-dropout).

`tokenizers` encodes texts; this repeats its merges on the ids of a store, whose pieces are first taken apart into symbols.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
#: `dropped(step, places)`: which of the pairs that begin at these symbols may not be merged in this step of their words.
Dropped = Callable[[int, Ints], Bools]

_NONE = np.int64(1) << 30  # the rank of a pair that is never merged
_INDEX = np.int64(32)      # bits of a symbol's number below a rank


class SymbolPieces(NamedTuple):
    """Pieces of words one after another: their ids (P,), and the number of the symbol that each begins with (P,)."""

    ids: Ints
    first: Ints


@dataclass(frozen=True)
class MergeTable:
    """Merges by rank, and the symbols of each id.

    `keys` (M,): left · `size` + right of each merge, ascending; `ranks` (M,) of the same; `made` (M,): the id that the merge of a
    rank makes. `begin` (V,) and `count` (V,): where the symbols of an id stand in `pool`.
    """

    size: int
    keys: Ints
    ranks: Ints
    made: Ints
    begin: Ints
    count: Ints
    pool: Ints

    @classmethod
    def of(cls, description: str, size: int) -> MergeTable | None:
        """The table of a tokenizer.json with `size` ids; None if its model is no BPE.

        An id whose symbols are not all in the vocabulary, such as a special token, is one symbol.
        """
        model = json.loads(description)["model"]
        if model.get("type") != "BPE":
            return None
        ids: dict[str, int] = model["vocab"]
        pairs = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
        left, right, merged_ids = (np.array([ids[name] for name in names], np.int64) for names in (
            [a for a, _ in pairs], [b for _, b in pairs], [a + b for a, b in pairs]
        ))
        keys = left * size + right
        order = np.argsort(keys, kind="stable")
        suffix = model.get("end_of_word_suffix") or ""
        symbols: list[list[int]] = [[number] for number in range(size)]
        for piece, number in ids.items():
            spelled = [ids.get(symbol, -1) for symbol in _symbols(piece, suffix)]
            symbols[number] = spelled if spelled and min(spelled) >= 0 else [number]
        count = np.array([len(spelling) for spelling in symbols], np.int64)
        pool = np.array([symbol for spelling in symbols for symbol in spelling], np.int64)
        return cls(size, keys[order], order.astype(np.int64), merged_ids, np.cumsum(count) - count, count, pool)

    def apart(self, ids: NDArray[Any]) -> tuple[Ints, Ints]:
        """The symbols of pieces (P,) one after another, and how many each piece has (P,)."""
        count = self.count[ids]
        ends = np.cumsum(count)
        index = np.repeat(self.begin[ids] - (ends - count), count)
        return self.pool[index + np.arange(len(index))], count

    def merged(self, symbols: Ints, starts: Bools, dropped: Dropped | None = None) -> SymbolPieces:
        """The pieces of words of `symbols` (N,), which begin where `starts` (N,) is true.

        In each step of a word the merge of the lowest rank, of equal ones the leftmost, joins one pair, as long as there is one
        (Sennrich et al., 2016). Pairs that are `dropped` are left out of the choice of that step only, and a word is done when
        none is left to choose (Provilkov et al., 2020, alg. 1).
        """
        ids, remaining = symbols.copy(), np.ones(len(symbols), np.bool_)
        position = np.arange(len(symbols))
        word = np.cumsum(starts)
        rank = self._ranks(ids[:-1], ids[1:], word[:-1] == word[1:])
        step = 0
        while len(position):
            free = rank.copy()
            if dropped is not None:
                joinable = np.flatnonzero(rank < _NONE)
                free[joinable[dropped(step, position[joinable])]] = _NONE
            first = np.flatnonzero(np.concatenate([[True], word[1:] != word[:-1]]))
            best = np.minimum.reduceat((free << _INDEX) | np.arange(len(position)), first)
            going = best >> _INDEX < _NONE
            chosen = best[going] & ((np.int64(1) << _INDEX) - 1)
            ids[position[chosen]] = self.made[rank[chosen]]
            remaining[position[chosen + 1]] = False
            stays = np.repeat(going, np.diff(first, append=len(position)))
            stays[chosen + 1] = False
            joined = np.zeros(len(position), np.bool_)
            joined[chosen] = True
            position, word, rank, joined = position[stays], word[stays], rank[stays], joined[stays]
            here = np.flatnonzero(joined | np.concatenate([joined[1:], [False]])) if len(position) else position
            after = np.minimum(here + 1, len(position) - 1)
            rank[here] = self._pairs(ids[position[here]], ids[position[after]], (word[here] == word[after]) & (after > here))
            step += 1
        return SymbolPieces(ids[remaining], np.flatnonzero(remaining))

    def _ranks(self, left: Ints, right: Ints, together: Bools) -> Ints:
        """The rank of each symbol with the next one; that of the last is `_NONE`."""
        return np.append(self._pairs(left, right, together), _NONE)

    def _pairs(self, left: Ints, right: Ints, together: Bools) -> Ints:
        keys = left * self.size + right
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return np.full(len(keys), _NONE)
        return np.where(together & (self.keys[at] == keys), self.ranks[at], _NONE)


def _symbols(piece: str, suffix: str) -> list[str]:
    """The symbols that a piece is made of, the last with the mark of the end of a word if the piece has it."""
    stem = piece.removesuffix(suffix) if suffix and piece != suffix else piece
    symbols = list(stem)
    if stem != piece and symbols:
        symbols[-1] += suffix
    return symbols
