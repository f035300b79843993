"""Who may see whom, as one integer per token: token i sees token j if order[j] <= order[i]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows

#: Orders that are the same for every row: a pass has their name, and the batch carries no integers.
CONSTANT = frozenset({"open", "left_to_right"})


@register("edit", "order")
@dataclass(frozen=True)
class Order(Edit):
    """Give `order` (B, L): `open` all 0, `left_to_right` 0, 1, …, `right_to_left` …, 1, 0, `source_to_target` 0 on the
    first segment, then 1, 2, … (UniLM, Dong et al., 2019, §2.3)."""

    kind: Literal["open", "left_to_right", "right_to_left", "source_to_target"] = "open"

    @property
    def takes(self) -> frozenset[str]:
        names = frozenset({"tokens", "length"})
        return names | {"segments"} if self.kind == "source_to_target" else names

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"order"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        shape = rows["tokens"].shape
        columns = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        if self.kind == "open":
            return rows.having(order=np.zeros(shape, np.int32))
        if self.kind == "left_to_right":
            return rows.having(order=columns)
        if self.kind == "right_to_left":
            return rows.having(order=rows["length"][:, None].astype(np.int32) - 1 - columns)
        source = rows["segments"] == rows["segments"][:, :1]
        return rows.having(order=np.cumsum(~source, axis=1, dtype=np.int32))
