"""Adds words to a vocabulary of byte pairs: further merges behind the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def add_merges(model: dict[str, Any], words: Sequence[Sequence[str]], *, size: int) -> None:
    """Add merges to a BPE `model` of tokenizer.json, in place, that join the pieces of each word; ids from `size` on.

    `words` are words as the old vocabulary reads them, as lists of pieces. The new merges come after all old ones, so that a text
    is first read as before, and then pieces that make up one of the words are joined. A word of n pieces takes at most n - 1
    merges, and an id for each of its beginnings: byte pairs cannot join more than two pieces at once.
    """
    vocabulary, merges = model["vocab"], model["merges"]
    joined = bool(merges) and isinstance(merges[0], str)  # how older files write a merge: "a b"
    ranks: dict[tuple[str, str], int] = {}
    for word in words:
        pieces = list(word)
        while len(pieces) > 1:
            ranked = [pair for pair in zip(pieces, pieces[1:], strict=False) if pair in ranks]
            pair = min(ranked, key=ranks.__getitem__) if ranked else (pieces[0], pieces[1])
            if pair not in ranks:
                ranks[pair] = len(ranks)
                merges.append(" ".join(pair) if joined else list(pair))
                vocabulary.setdefault("".join(pair), size)
                size = max(size, 1 + vocabulary["".join(pair)])
            pieces = _merged(pieces, pair)


def _merged(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """The pieces with every occurrence of a pair joined, from left to right."""
    merged: list[str] = []
    at = 0
    while at < len(pieces):
        two = (pieces[at], pieces[at + 1]) if at + 1 < len(pieces) else None
        merged.append("".join(pair) if two == pair else pieces[at])
        at += 2 if two == pair else 1
    return merged
