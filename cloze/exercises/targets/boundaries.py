"""Make targets of the tokens of masked spans, predicted from the two tokens around the span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import slots
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, rows_and_columns


@register("edit", "boundaries")
@dataclass(frozen=True)
class Boundaries(Edit):
    """The targets of the span boundary objective (SpanBERT, Joshi et al., 2020, §3.2; `masking.py`, `span_masking`).

    Gives, for every token of every masked span, `targets/<set>`, the original token, with `positions/<set>`, the column before
    the span; and `targets/<set>_right`, the token's number in the span from 1, with `positions/<set>_right`, the column after
    the span; all (B, K), position -1 for none. A span at the first or last token of the text has no targets, and each span has
    at most `most`, its first tokens. Adjacent masked tokens are one span.
    """

    most: Count | None = None
    set: str = "boundary"

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 1:
            raise RecipeError(f"boundaries: most must be at least 1, got {self.most}.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "masked", "special"})

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: after `corrupt`, targets are the original tokens."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(f"{field}/{self.set}{side}" for field in ("targets", "positions") for side in ("", "_right"))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        originals = rows.get("original", rows["tokens"])
        count, width = originals.shape
        row, column = rows_and_columns(rows["masked"])
        begins = np.ones(len(row), bool)
        begins[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1] + 1)
        first = np.flatnonzero(begins)
        size = np.diff(first, append=len(row))
        left = np.repeat(column[first] - 1, size)
        right = np.repeat(column[first] + size, size)
        text = np.zeros((count, width + 2), bool)  # one more column at both ends, outside the text
        text[:, 1:-1] = ~rows["special"] & (np.arange(width) < rows["length"][:, None])
        offset = column - left
        mask = text[row, left + 1] & text[row, right + 1] & (offset <= (self.most or width))
        row, column, left, right, offset = (value[mask] for value in (row, column, left, right, offset))
        number = np.bincount(row, minlength=count)
        index = row, slots(number)
        filled = {}
        for name, values in (
            (f"targets/{self.set}", originals[row, column]), (f"positions/{self.set}", left),
            (f"targets/{self.set}_right", offset), (f"positions/{self.set}_right", right),
        ):
            laid = np.full((count, int(number.max(initial=0))), -1 if name.startswith("positions") else 0, np.int32)
            laid[index] = values
            filled[name] = laid
        return rows.having_all(filled)
