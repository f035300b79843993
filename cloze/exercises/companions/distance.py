"""Two sentences and how far apart they stand (ERNIE 2.0)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.exercises.edit import Edit
from cloze.exercises.joined import with_companions
from cloze.registry import register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows, columns_before, count_true


@register("edit", "distance")
@dataclass(frozen=True)
class Distance(Edit):
    """Two sentences, A and B: adjacent (class 0), of one document but not adjacent (1), or of two documents (2), each equally
    likely (ERNIE 2.0, Sun et al., 2020). A passage of two sentences has no pair of class 1, and one of one sentence is always of
    class 2.

    Gives `parts` (B, 2, 2), start and stop of both sentences, and `targets/<set>` (B,). The sentences of classes 0 and 1 stand in
    the order of the text.

    Differs: both sentences of class 1 are of one passage.
    """

    set: str = "distance"

    @property
    def joins(self) -> tuple[str, ...]:
        """The companion with the sentence of another document."""
        return ("distractor",)

    @property
    def takes(self) -> frozenset[str]:
        names = {"tokens", "length", "sentence"}
        return frozenset(names | {f"distractor.{name}" for name in names})

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
        parts = np.empty((rows.count, 2, 2), np.int64)
        for part, number in enumerate((first, second)):
            parts[:, part, 0] = count_true((sentence < number[:, None]) & inside)
            parts[:, part, 1] = count_true((sentence <= number[:, None]) & inside)
        other, size = rows["distractor.sentence"], rows["distractor.length"]
        elsewhere = kind == 2
        start = rows["tokens"].shape[1]
        stop = start + count_true((other <= other[:, :1]) & columns_before(size, other.shape[1]))
        parts[elsewhere, 1] = np.stack([np.full_like(stop, start), stop], axis=1)[elsewhere]
        text_pairs = rows.without("sentence")  # meaningless in a row of two texts
        text_pairs = text_pairs.having_all(with_companions(text_pairs, *self.joins))
        return text_pairs.having_all({"parts": parts, f"targets/{self.set}": kind.astype(np.int32)})
