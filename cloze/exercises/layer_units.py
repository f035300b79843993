"""The units of an annotation layer in a block of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloze.rows import Rows, columns_before


def begins(rows: Rows, layer: str) -> NDArray[np.bool_]:
    """(B, L) where units of a layer begin, within the rows: at their first token, or at the first that was not cut off."""
    marks = rows[f"layers/{layer}"]
    inside = marks > 0
    first = marks == 1
    first[:, 1:] |= inside[:, 1:] & ~inside[:, :-1]
    first[:, 0] |= inside[:, 0]
    if f"labels/{layer}" in rows:  # two units that touch where the second has lost its first token
        labels = rows[f"labels/{layer}"]
        first[:, 1:] |= inside[:, 1:] & (labels[:, 1:] != labels[:, :-1])
    return first & columns_before(rows["length"], marks.shape[1])
