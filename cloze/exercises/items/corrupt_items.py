"""Replace or drop items that are linked to tokens, such as entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.tables import check_table, table_of
from cloze.registry import Given, register
from cloze.rng import Draw, integers_below
from cloze.rows import Rows, rows_and_columns


@register("edit", "corrupt_items")
@dataclass(frozen=True)
class CorruptItems(Edit):
    """Replace `items/<set>`: with probability `other` by another item of the recipe's table `table`, with probability `drop` by
    none, with probability `mask` by the table's item for a hidden one; else an item stays (Zhang et al., ERNIE, 2019, §3.4).

    `of: masked` concerns only items that are linked to a token that `mask` has chosen. Each of these tokens draws for the
    item: it is replaced if one of them says so, else dropped, else hidden. With 80 % hidden and 10 % replaced, a name with
    two masked tokens is replaced in 19 % of cases and hidden in 80 % (allenai/kb, kb/bert_pretraining_reader.py,
    `mask_entities`). Targets stay as they are: what is asked is the item before.

    Differs: the other item is any of the table. In the code of ERNIE it is one of the batch. That of KnowBert gives the name
    1 to 5 candidates in place of its own, drawn from those of all names of the text, with random priors; where two tables
    find the same name, it draws for both together.
    """

    set: str = "entity"
    table: str = "entities"
    other: Share = 0.05
    drop: Share = 0.15
    mask: Share = 0.0
    of: Literal["all", "masked"] = "all"
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.other + self.drop + self.mask > 1 + 1e-6:
            raise RecipeError(
                f"corrupt_items: other, drop and mask must add up to at most 1, got {self.other} + {self.drop} + {self.mask}."
            )
        check_table("corrupt_items", self.table, self.tables)

    @property
    def takes(self) -> frozenset[str]:
        names = frozenset({f"items/{self.set}"})
        return names | {f"links/{self.set}", "masked"} if self.of == "masked" else names

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"items/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        table = table_of("corrupt_items", self.table, self.tables)
        items = rows[f"items/{self.set}"].copy()
        row, column, drawer = self._draws(rows, items)
        coin = draw.bits_at("corrupt_items", row, drawer) / 2.0**32
        outcome = np.searchsorted(np.cumsum([self.other, self.drop, self.mask]), coin, side="right")
        originals, hidden, dropped, replaced = items[row, column], outcome == 2, outcome == 1, outcome == 0
        # In this order, because an item may have several draws.
        if self.mask:
            items[row[hidden], column[hidden]] = table.hidden
        items[row[dropped], column[dropped]] = 0
        if self.other and table.size > 2:  # a table of one item has no other
            drawn = 1 + integers_below(draw.bits_at("corrupt_items.other", row, column), table.size - 2).astype(originals.dtype)
            items[row[replaced], column[replaced]] = (drawn + (drawn >= originals))[replaced]
        return rows.having_all({f"items/{self.set}": items})

    def _draws(self, rows: Rows, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Every draw (N,): its row, the column of its item, and what draws, the item or a link to it."""
        if self.of == "all":
            row, column = rows_and_columns(items > 0)
            return row, column, column
        links = rows[f"links/{self.set}"]
        row, slot = rows_and_columns(links[:, :, 0] >= 0)
        token, item = links[row, slot].T
        drawing = rows["masked"][row, token] & (items[row, item] > 0)
        return row[drawing], item[drawing], slot[drawing]
