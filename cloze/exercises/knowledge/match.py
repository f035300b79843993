"""Find the n-grams of a lexicon in each row, and the tokens that each covers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.tables import check_table, items_of, links_of, table_of
from cloze.exercises.units.unit_request import exactly, slots
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "match")
@dataclass(frozen=True)
class Match(Edit):
    """Find every n-gram of the lexicon `table` in the visible row; if there are more than `most`, keep a random choice (ZEN, Diao
    et al., 2020, §2.1; sinovation/ZEN). After `corrupt` no n-gram covers a masked token.

    Gives `items/<give>` (B, R), ids of the lexicon, 0 for none, and `links/<give>` (B, E, 2), pairs of (column, item), -1 for
    none.
    """

    table: str
    most: Count = 128
    give: str = "ngram"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.most < 1:
            raise RecipeError(f"match: most must be at least 1, got {self.most}.")
        check_table("match", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"items/{self.give}", f"links/{self.give}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        row, start, size, number = table_of("match", self.table, self.tables).match(rows["tokens"], rows["length"])
        mask = self._some(row, rows.count, draw)
        row, start, size, number = row[mask], start[mask], size[mask], number[mask]
        items, item = items_of(row, number, rows.count)
        links = links_of(np.repeat(row, size), np.repeat(start, size) + slots(size), np.repeat(item, size), rows.count)
        return rows.having_all({f"items/{self.give}": items, f"links/{self.give}": links})

    def _some(self, row: NDArray[Any], count: int, draw: Draw) -> NDArray[np.bool_] | slice:
        """Which matches are kept."""
        counts = np.bincount(row, minlength=count)
        width = int(counts.max(initial=0))
        if width <= self.most:
            return slice(None)
        exists = np.arange(width) < counts[:, None]
        chosen = exactly(np.minimum(counts, self.most), exists, draw.bits("match", width))
        return np.asarray(chosen[row, slots(counts)])
