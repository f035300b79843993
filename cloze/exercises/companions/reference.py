"""Choose one of several reference texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "reference")
@dataclass(frozen=True)
class Reference(Edit):
    """Keep one of the references of a record, which follow one another in the companion `of`: `any` one, drawn in every
    epoch, or the `first`.

    With `any`, every record has one target per epoch, however many references it has, and all of them occur over the epochs.
    """

    take: Literal["any", "first"] = "any"
    of: str = "target"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset(f"{self.of}.{name}" for name in ("tokens", "length", "parts"))

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(f"{self.of}.{name}" for name in ("tokens", "length"))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens, parts = rows[f"{self.of}.tokens"], rows[f"{self.of}.parts"].astype(np.int64)
        number = (parts[:, :, 0] >= 0).sum(1)
        chosen = np.zeros(len(parts), np.int64)
        if self.take == "any":
            chosen = np.minimum((draw.uniform("reference") * number).astype(np.int64), number - 1)
        start, stop = parts[np.arange(len(parts)), chosen].T
        length = stop - start
        columns = start[:, None] + np.arange(max(int(length.max(initial=0)), 1))
        reference = np.take_along_axis(tokens, np.minimum(columns, tokens.shape[1] - 1), axis=1)
        return rows.having_all({f"{self.of}.tokens": reference, f"{self.of}.length": length.astype(np.int32)})
