"""All segmentations of words into the pieces of a unigram vocabulary, on whole arrays, and draws among them.

`tokenizers` encodes texts with the most probable segmentation; this draws others for the ids of a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.rng import mix_keys
from cloze.text.vocabularies.merging import SymbolPieces

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
#: `draws(places)`: a number in [0, 1) for each of these characters, the places of ends of pieces.
Draws = Callable[[Ints], Floats]

_BASE, _MASK = 0x100000001B3, (1 << 64) - 1
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class _Words(NamedTuple):
    """Words one after another: `begin` and `size` (W,) of their characters."""

    begin: Ints
    size: Ints


@dataclass(frozen=True)
class PieceLattice:
    """Pieces by the hash of their characters, and the characters of each id.

    `keys` (P,) ascending, `ids` (P,) and `scores` (P,) of the same pieces; `longest` is the length of the longest. `begin` (V,)
    and `count` (V,): where the characters of an id stand in `pool`; `alone` (V,): ids that are never taken apart or joined.
    """

    keys: NDArray[np.uint64]
    ids: Ints
    scores: Floats
    longest: int
    begin: Ints
    count: Ints
    pool: Ints
    alone: Bools

    @classmethod
    def of(cls, description: str, size: int) -> PieceLattice | None:
        """The lattice of a tokenizer.json with `size` ids; None if its model is no unigram model."""
        data = json.loads(description)
        model = data["model"]
        if model.get("type") != "Unigram":
            return None
        special = {token["id"] for token in data.get("added_tokens", [])} | {model.get("unk_id")}
        spelled: list[str] = [""] * size
        alone, scores = np.ones(size, np.bool_), np.zeros(size)
        for number, (piece, score) in enumerate(model["vocab"]):
            if number not in special and piece and not _BYTE.fullmatch(piece):
                spelled[number], scores[number], alone[number] = piece, score, False
        count = np.array([max(len(piece), 1) for piece in spelled], np.int64)
        pool = np.array([code for piece in spelled for code in (map(ord, piece) if piece else (0,))], np.int64)
        begin = np.cumsum(count) - count
        numbers = np.flatnonzero(~alone)
        keys = np.array([_hash(spelled[number]) for number in numbers.tolist()], np.uint64)
        order = np.argsort(keys, kind="stable")
        longest = int(count[numbers].max(initial=1))
        return cls(keys[order], numbers[order], scores[numbers[order]], longest, begin, count, pool, alone)

    def apart(self, ids: NDArray[Any]) -> tuple[Ints, Ints]:
        """The characters of pieces (P,) one after another, and how many each piece has (P,)."""
        count = self.count[ids]
        index = np.repeat(self.begin[ids] - (np.cumsum(count) - count), count)
        return self.pool[index + np.arange(len(index))], count

    def drawn(self, tokens: NDArray[Any], starts: Bools, alpha: float, draws: Draws) -> SymbolPieces:
        """The pieces of words of `tokens` (N,), which begin where `starts` (N,) is true: of each word a segmentation drawn in
        proportion to its probability to the power `alpha`, by the sums over all of them (Kudo, 2018, §3.3; forward filtering,
        backward sampling). `first` of a piece is the number of its first character.
        """
        tokens = np.asarray(tokens, np.int64)
        codes, count = self.apart(tokens)
        starts = starts | self.alone[tokens]
        starts[1:] |= self.alone[tokens[:-1]]
        head = np.flatnonzero(starts)
        ends = np.cumsum(count)
        begin = (ends - count)[head]
        every = _Words(begin, np.diff(begin, append=len(codes)))
        fixed = self.alone[tokens[head]]
        kinds, which = _kinds(tokens, head)
        free_kinds = np.flatnonzero(~fixed[kinds])  # one word of each kind, without those that stay
        lattice_of = np.full(len(kinds), -1)
        lattice_of[free_kinds] = np.arange(len(free_kinds))
        free_words = _Words(every.begin[kinds[free_kinds]], every.size[kinds[free_kinds]])
        arcs, score, offset = self._arcs(codes, free_words)
        sums = _sums(alpha * score, free_words.size, offset)
        pieces = _backward(alpha * score, sums, offset, every, lattice_of[which], draws)
        stays = np.flatnonzero(fixed)
        ids = np.concatenate([tokens[head[stays]], arcs[pieces.arc, pieces.length - 1]])
        first = np.concatenate([every.begin[stays], pieces.first])
        order = np.argsort(first, kind="stable")
        return SymbolPieces(ids[order], first[order])

    def _arcs(self, codes: Ints, words: _Words) -> tuple[Ints, Floats, Ints]:
        """For each character of some words, (C, `longest`) the piece of each length that ends there, -1 for none, and its score,
        -inf for none; and where the characters of each word begin (W,)."""
        offset = np.cumsum(words.size) - words.size
        nth = np.arange(int(words.size.sum())) - np.repeat(offset, words.size)
        at = np.repeat(words.begin, words.size) + nth
        hashed = np.zeros(len(at), np.uint64)
        ids = np.full((len(at), self.longest), -1, np.int64)
        score = np.full((len(at), self.longest), -np.inf)
        for length in range(1, self.longest + 1):
            inside = np.flatnonzero(nth >= length - 1)
            power = np.array([pow(_BASE, length - 1, 1 << 64)], np.uint64)
            hashed[inside] += (codes[at[inside] - length + 1].astype(np.uint64) + np.uint64(1)) * power
            keys = mix_keys(hashed[inside], length)
            index = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            right = self.keys[index] == keys
            ids[inside[right], length - 1] = self.ids[index[right]]
            score[inside[right], length - 1] = self.scores[index[right]]
        return ids, score, offset


class _Found(NamedTuple):
    """Pieces that were drawn: the first character of each, the row of its arcs, and its length."""

    first: Ints
    arc: Ints
    length: Ints


def _hash(piece: str) -> int:
    """What `_arcs` computes for a piece, on one."""
    value = 0
    for power, character in enumerate(reversed(piece)):
        value += (ord(character) + 1) * pow(_BASE, power, 1 << 64)
    return int(mix_keys(np.array([value & _MASK], np.uint64), len(piece))[0])


def _kinds(tokens: Ints, head: Ints) -> tuple[Ints, Ints]:
    """One word of each kind, and the kind of each word: words of equal tokens are of one kind."""
    size = np.diff(head, append=len(tokens))
    nth = np.arange(len(tokens)) - np.repeat(head, size)
    mixed = mix_keys(tokens.astype(np.uint64) ^ (nth.astype(np.uint64) << np.uint64(40)), 1)
    _, first, which = np.unique(np.add.reduceat(mixed, head), return_index=True, return_inverse=True)
    return first, which


def _sums(score: Floats, size: Ints, offset: Ints) -> Floats:
    """(C,) the logarithm of the sum over all segmentations of what ends with each character, word by word."""
    sums = np.full(len(score), -np.inf)
    longest = score.shape[1]
    order = np.argsort(-size, kind="stable")
    reach = size[order]
    for nth in range(int(size.max(initial=0))):
        at = offset[order[: np.searchsorted(-reach, -nth, side="left")]] + nth
        before = np.full((len(at), min(nth + 1, longest)), 0.0)
        for length in range(1, before.shape[1] + 1):
            if length <= nth:
                before[:, length - 1] = sums[at - length]
        total = before + score[at, : before.shape[1]]
        top = total.max(axis=1)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            sums[at] = safe + np.log(np.exp(total - safe[:, None]).sum(axis=1))
    return sums


def _backward(score: Floats, sums: Floats, offset: Ints, words: _Words, lattice: Ints, draws: Draws) -> _Found:
    """Pieces of each word from its end to its beginning; words whose `lattice` is -1 have none."""
    going = np.flatnonzero(lattice >= 0)
    left = words.size[going].copy()  # characters that are not in a piece yet
    longest = score.shape[1]
    back = np.arange(1, longest + 1)
    first, arc, lengths = [], [], []
    while len(going):
        row = offset[lattice[going]] + left - 1
        before = np.where(back < left[:, None], sums[np.maximum(row[:, None] - back, 0)], 0.0)
        weight = np.where(back <= left[:, None], np.exp(before + score[row] - sums[row][:, None]), 0.0)
        up = np.cumsum(weight, axis=1)
        drawn = draws(words.begin[going] + left - 1) * up[:, -1]
        length = 1 + np.minimum(np.count_nonzero(up <= drawn[:, None], axis=1), longest - 1)
        left = left - length
        first.append(words.begin[going] + left)
        arc.append(row)
        lengths.append(length)
        more = left > 0
        going, left = going[more], left[more]
    none = np.zeros(0, np.int64)
    return _Found(*(np.concatenate(parts or [none]) for parts in (first, arc, lengths)))
