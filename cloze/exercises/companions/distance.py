"""Two sentences and how far apart they stand (ERNIE 2.0)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.edit import Edit
from cloze.exercises.joined import with_companions
from cloze.registry import register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows, columns_before, count_true


class WithDistractor(Edit):
    """An edit of sentences, one of which may be that of another document: the companion `distractor`."""

    @property
    def joins(self) -> tuple[str, ...]:
        """The companion with the sentence of another document."""
        return ("distractor",)

    @property
    def takes(self) -> frozenset[str]:
        names = {"tokens", "length", "sentence"}
        return frozenset(names | {f"distractor.{name}" for name in names})


@register("edit", "distance")
@dataclass(frozen=True)
class Distance(WithDistractor):
    """Two sentences, A and B: adjacent (class 0), of one document but not adjacent (1), or of two documents (2), each equally
    likely (ERNIE 2.0, Sun et al., 2020). A passage of two sentences has no pair of class 1, and one of one sentence is always of
    class 2.

    Gives `parts` (B, 2, 2), start and stop of both sentences, and `targets/<set>` (B,). The sentences of classes 0 and 1 stand in
    the order of the text.

    Differs: both sentences of class 1 are of one passage.
    """

    set: str = "distance"

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"parts", f"targets/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        sentence, length = rows["sentence"], rows["length"].astype(np.int64)
        inside = columns_before(length, sentence.shape[1])
        last = np.where(inside, sentence, 0).max(axis=1).astype(np.int64)
        kind = integers_below(draw.bits("distance"), np.full(rows.count, 3))
        kind = np.where(last == 0, 2, np.where((last == 1) & (kind == 1), 0, kind))
        pairs = np.where(kind == 0, last, last * (last - 1) // 2)  # how many pairs of sentences have this distance
        pick = integers_below(draw.bits("distance.pair"), np.where(kind == 2, last + 1, np.maximum(pairs, 1)))
        first, second = pick, pick + 1
        # The pairs (i, j) with j ≥ i + 2, counted back from the last first sentence: i = last - 2 has one, the one before two, …
        back = ((np.sqrt(8.0 * pick + 1) - 1) // 2).astype(np.int64)
        far = kind == 1
        first = np.where(far, last - 2 - back, first)
        second = np.where(far, first + 2 + pick - back * (back + 1) // 2, second)
        parts = np.stack([sentence_bounds(rows, first), sentence_bounds(rows, second)], axis=1)
        parts[kind == 2, 1] = first_sentence(rows)[kind == 2]
        text_pairs = rows.without("sentence")  # meaningless in a row of two texts
        text_pairs = text_pairs.having_all(with_companions(text_pairs, *self.joins))
        return text_pairs.having_all({"parts": parts, f"targets/{self.set}": kind.astype(np.int32)})


def sentence_bounds(rows: Rows, number: NDArray[np.int64]) -> NDArray[np.int64]:
    """(B, 2) start and stop of the sentence `number` (B,) of each passage; both are its length if it has fewer sentences."""
    sentence = rows["sentence"]
    inside = columns_before(rows["length"].astype(np.int64), sentence.shape[1])
    return np.stack([
        count_true((sentence < number[:, None]) & inside), count_true((sentence <= number[:, None]) & inside)
    ], axis=1)  # fmt: skip


def first_sentence(rows: Rows) -> NDArray[np.int64]:
    """(B, 2) start and stop of the first sentence of the distractor, once it is joined to its passage."""
    sentence, start = rows["distractor.sentence"], rows["tokens"].shape[1]
    size = count_true((sentence <= sentence[:, :1]) & columns_before(rows["distractor.length"], sentence.shape[1]))
    return np.stack([np.full_like(size, start), start + size], axis=1)
