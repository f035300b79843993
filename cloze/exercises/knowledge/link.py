"""Link the mentions of an annotation layer to the entities of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.tables import check_table, items_of, links_of, table_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns


@register("edit", "link")
@dataclass(frozen=True)
class Link(Edit):
    """Give each mention of the annotation layer `layer` its entity of the table `table` as an item, linked to the mention's first
    token, or to all of them. A mention whose label the table lacks has none. Put `link` after the edits that move tokens.

    Gives `items/<give>` (B, R), entities of the table in the order of their mentions, 0 for none, and `links/<give>` (B, E, 2),
    pairs of (column, item), -1 for none. A mention whose beginning was cut off is linked at the first token that is left.
    """

    table: str
    layer: str
    give: str = "entity"
    tokens: Literal["first", "all"] = "first"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_table("link", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", f"layers/{self.layer}", f"labels/{self.layer}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"items/{self.give}", f"links/{self.give}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        first, labels = begins(rows, self.layer), rows[f"labels/{self.layer}"]
        entity = table_of("link", self.table, self.tables).of_label(self.layer)[labels]
        row, start = rows_and_columns(first & (entity > 0))
        items, item = items_of(row, entity[row, start], rows.count)
        at_row, column, which = row, start, item
        if self.tokens == "all":
            mention = np.cumsum(first & (entity > 0), axis=1) - 1
            inside = (entity > 0) & (rows[f"layers/{self.layer}"] > 0) & columns_before(rows["length"], entity.shape[1])
            at_row, column = rows_and_columns(inside)
            which = mention[at_row, column]
        return rows.having_all({
            f"items/{self.give}": items, f"links/{self.give}": links_of(at_row, column, which, rows.count)
        })
