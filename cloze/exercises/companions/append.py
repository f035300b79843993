"""Append the text and the items of a companion to those of the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.corpus.items.following import followed, places
from cloze.exercises.edit import Edit
from cloze.exercises.joined import with_companions
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "append")
@dataclass(frozen=True)
class Append(Edit):
    """With probability `rate`, append a companion, such as the `next` caption of a film, to the text of the row, and its items to
    the items of the sets `items` (Sun et al., VideoBERT, 2019, §3.2, against captions that are earlier or later than what they
    tell).

    A row whose companion is empty stays as it is. Put it before `frame` and before edits that choose items.
    """

    companion: str = "next"
    rate: Share = 0.5
    items: tuple[str, ...] = ()

    @property
    def joins(self) -> tuple[str, ...]:
        """The companion: its text enters the row."""
        return (self.companion,)

    @property
    def takes(self) -> frozenset[str]:
        names = {"tokens", "length", *(f"item_length/{name}" for name in self.items)}
        return frozenset(names | {f"{self.companion}.{name}" for name in names})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", "length", *(f"item_length/{name}" for name in self.items)})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        chosen = draw.uniform("append") < self.rate
        length, more = rows["length"].astype(np.int64), rows[f"{self.companion}.length"].astype(np.int64) * chosen
        width = rows["tokens"].shape[1]
        both = places(length, more, width)
        joined = rows.having_all(with_companions(rows, self.companion)).splice(both, (length + more).astype(np.int32))
        return joined.having_all({
            name: value for items in self.items for name, value in self._appended(rows, items, chosen).items()
        })

    def _appended(self, rows: Rows, name: str, chosen: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """The fields of a set of items, followed by those of the companion."""
        lead, length = f"{self.companion}.", f"item_length/{name}"
        companion = {field.removeprefix(lead): value for field, value in rows.items() if field.startswith(lead)}
        return followed(rows, {**companion, length: companion[length] * chosen}, name)
