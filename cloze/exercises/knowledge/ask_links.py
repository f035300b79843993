"""Ask which entity each surface form of a text means, where an annotation layer says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.tables import check_table, ends_of_items, table_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns


@register("edit", "ask_links")
@dataclass(frozen=True)
class AskLinks(Edit):
    """Ask, for every surface form `items/<of>`, which entity it means: the label of the mention in the layer `layer` that has the
    same first and last token, or no entity (KnowBert, Peters et al., 2019, §3.2).

    Gives `items/<give>` (B, R), the numbers of entities in the table `table`, 0 for what is not asked: the padding, and surface
    forms with a token that `mask` has chosen.
    """

    layer: str
    table: str = "surfaces"
    of: str = "surface"
    give: str = "entity"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_table("ask_links", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        items = {f"items/{self.of}", f"links/{self.of}"}
        return frozenset({"tokens", "length", f"layers/{self.layer}", f"labels/{self.layer}", *items})

    @property
    def optional(self) -> frozenset[str]:
        return frozenset({"masked"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"items/{self.give}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        table = table_of("ask_links", self.table, self.tables)
        items, links, labels = rows[f"items/{self.of}"], rows[f"links/{self.of}"], rows[f"labels/{self.layer}"]
        length = labels.shape[1]
        first, last = ends_of_items(links, items.shape[1], length)
        opens = begins(rows, self.layer)
        inside = (rows[f"layers/{self.layer}"] > 0) & columns_before(rows["length"], length)
        follows = np.pad(inside & ~opens, ((0, 0), (0, 1)))[:, 1:]  # the next token belongs to the same mention
        entity = table.of_label(self.layer)[labels]
        targets = np.zeros(items.shape, np.int32)
        at_row, at = rows_and_columns((items > 0) & (last >= 0))
        start, stop = first[at_row, at], last[at_row, at]
        mention = np.cumsum(opens, axis=1)
        exact = opens[at_row, start] & inside[at_row, stop] & (mention[at_row, start] == mention[at_row, stop])
        exact &= ~follows[at_row, stop]
        entities = np.where(exact, entity[at_row, start], 0)
        targets[at_row, at] = np.where(entities > 0, entities, table.null)
        if "masked" in rows:
            row, slot = rows_and_columns(links[:, :, 0] >= 0)
            token, item = links[row, slot].T
            hit = rows["masked"][row, token]
            targets[row[hit], item[hit]] = 0
        return rows.having_all({f"items/{self.give}": targets})
