"""Copy the masked tokens of a view into a view of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze import fields
from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import slots
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, rows_and_columns


@register("edit", "cut")
@dataclass(frozen=True)
class CutView(Edit):
    """Make a view `to` of the masked tokens of the view `of` (InfoWord, Kong et al., 2020, §4: an n-gram and its sentence).

    It reads `of` by name, so it belongs in the main view; a `frame` with `in: <to>` may follow.
    """

    to: str
    of: str = "main"

    @property
    def makes(self) -> str:
        return self.to

    @property
    def takes(self) -> frozenset[str]:
        return frozenset(fields.join(self.of, name) for name in ("tokens", "masked"))

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: after `corrupt`, the original tokens."""
        return frozenset({fields.join(self.of, "original")})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        view = rows.view(self.of)
        text = view.get("original", view["tokens"])
        row, column = rows_and_columns(view["masked"])
        length = np.bincount(row, minlength=rows.count)
        tokens = np.zeros((rows.count, max(int(length.max(initial=0)), 1)), np.int32)
        tokens[row, slots(length)] = text[row, column]
        return rows.with_view(self.to, Rows({"tokens": tokens, "length": length.astype(np.int32)}))
