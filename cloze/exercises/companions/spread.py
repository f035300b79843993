"""Make several rows of one record: one for each of its choices, or one for each order of its two texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.records.windows import shares
from cloze.exercises.edit import Edit
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows

Int64 = NDArray[np.int64]


@register("edit", "spread")
@dataclass(frozen=True)
class Spread(Edit):
    """Make several rows of each record, each with two parts; `owner` is the record of a row.

    `over: choices`: one row for the first text with each choice of the record; `column/<answer>` is 1 in the row of the right
    choice, else 0. `over: orders`: one row for each order of the two texts, for pairs without an order (Radford et al., 2018,
    §3.3). Put it before the frame; it cuts each row to its limit, at the end of the longer text. A batch has all rows of its
    records; the rows of one record are always in one micro-batch.
    """

    over: Literal["choices", "orders"] = "choices"
    answer: str = "label"
    limit: Given[int | None] = None

    spreads: ClassVar[bool] = True
    described: ClassVar[Mapping[str, str]] = MappingProxyType({"over": "over"})

    @property
    def takes(self) -> frozenset[str]:
        names = {"choices", f"column/{self.answer}"} if self.over == "choices" else set()
        return frozenset({"tokens", "length", "parts", *names})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"owner", "parts"} | ({f"column/{self.answer}"} if self.over == "choices" else set()))

    def for_length(self, length: int) -> Spread:
        """The same edit with rows of at most `length` tokens."""
        return replace(self, limit=length)

    def widths(self, source: Any, plan: Any, items: Int64) -> Int64:
        """How many rows each item of a source's plan makes, (B,)."""
        widths: Int64 = source.choices(plan, items) if self.over == "choices" else np.full(len(items), 2, np.int64)
        return widths

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        count = rows["choices"].astype(np.int64) if self.over == "choices" else np.full(rows.count, 2, np.int64)
        owner = np.repeat(np.arange(rows.count), count)
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        if self.over == "choices":
            part = np.stack([np.zeros_like(nth), 1 + nth], axis=1)
        else:
            part = np.stack([nth, 1 - nth], axis=1)
        bounds = rows["parts"][owner[:, None], part].astype(np.int64)  # (R, 2, 2)
        sizes = bounds[:, :, 1] - bounds[:, :, 0]
        new_sizes = sizes if self.limit is None else shares(sizes, self.limit)
        length = new_sizes.sum(1)
        column = np.arange(max(int(length.max(initial=1)), 1))
        index = np.where(column < new_sizes[:, :1], bounds[:, :1, 0] + column, bounds[:, 1:, 0] + column - new_sizes[:, :1])
        copies = rows.take(owner).splice(np.clip(index, 0, rows["tokens"].shape[1] - 1), length.astype(np.int32))
        stop = np.cumsum(new_sizes, axis=1)
        fields: dict[str, NDArray[Any]] = {"owner": owner, "parts": np.stack([stop - new_sizes, stop], axis=2)}
        if self.over == "choices":
            right = rows[f"column/{self.answer}"][owner]
            fields[f"column/{self.answer}"] = (nth == right).astype(np.int32)
        return copies.having_all(fields)
