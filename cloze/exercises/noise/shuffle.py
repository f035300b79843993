"""Shuffle the tokens of short spans, which the network learns to restore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import LAST, Bools, keyed
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows

Stretches = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@register("edit", "shuffle")
@dataclass(frozen=True)
class Shuffle(Edit):
    """Shuffle spans of `size` tokens, in total a fraction `rate` of the text (StructBERT, Wang et al., 2020, §2.2).

    There are max(1, round(rate·n / size)) spans of the n ordinary tokens, or as many as fit; they overlap neither each other nor
    masked or special tokens. A shuffle may leave the order unchanged. Gives `tokens` as shown, keeps `original`, and marks
    shuffled tokens in `layers/shuffled` with the number of their span; `predict: shuffled` makes them targets.
    """

    size: Count = 3
    rate: Share = 0.05

    def __post_init__(self) -> None:
        if self.size < 2:
            raise RecipeError(f"shuffle: size must be at least 2 tokens, got {self.size}.")
        if not 0 < self.rate <= 1:
            raise RecipeError(f"shuffle: rate must be above 0 and at most 1, got {self.rate}.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "special", "masked"})

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: after `corrupt`, `original` is kept."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", "original", "layers/shuffled"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens = rows["tokens"]
        count, width = tokens.shape
        text = ~rows["special"] & (np.arange(width) < rows["length"][:, None])
        number = np.maximum(np.rint(self.rate * np.count_nonzero(text, axis=1) / self.size), 1).astype(np.int64)
        row, start, stretch = self._stretches(number, text & ~rows["masked"], draw)
        column = start[:, None] + np.arange(self.size)
        order = np.argsort(
            draw.bits_at("shuffle.order", np.repeat(row, self.size), column.ravel()).reshape(column.shape), axis=1, kind="stable"
        )
        shuffled, marks = tokens.copy(), np.zeros((count, width), np.int32)
        shuffled[row[:, None], column] = tokens[row[:, None], np.take_along_axis(column, order, axis=1)]
        marks[row[:, None], column] = stretch[:, None]
        original = rows.get("original", tokens)
        return rows.having_all({"tokens": shuffled, "original": original, "layers/shuffled": marks})

    def _stretches(self, number: NDArray[np.int64], free: Bools, draw: Draw) -> Stretches:
        """Row, first column and number from 1 of random spans of free tokens that do not overlap."""
        count, width = free.shape
        fits = np.zeros_like(free)
        if width >= self.size:
            fits[:, : width - self.size + 1] = np.lib.stride_tricks.sliding_window_view(free, self.size, axis=1).all(axis=2)
        keys = keyed(fits, draw.bits("shuffle", width))
        rounds: list[Stretches] = []
        for order in range(int(number.max(initial=0))):
            start = np.argmin(keys, axis=1)
            good = np.flatnonzero((keys[np.arange(count), start] != LAST) & (order < number))
            if not len(good):
                break
            rounds.append((good, start[good], np.full(len(good), order + 1)))
            near = np.clip(start[good][:, None] + np.arange(1 - self.size, self.size), 0, width - 1)
            keys[good[:, None], near] = LAST
        if not rounds:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing
        rows, starts, stretches = (np.concatenate(column) for column in zip(*rounds, strict=True))
        return rows, starts, stretches
