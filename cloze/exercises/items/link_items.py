"""Link the words of a text that mean an item, such as a region of its picture, with that item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.tables import links_of
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns


@register("edit", "link_items")
@dataclass(frozen=True)
class LinkItems(Edit):
    """Link all tokens of a mention, or its first one, with the item of the set that it means (Alberti et al., B2T2, 2019, §3.2;
    the positions of VisualBERT, Li et al., 2019, §3).

    The labelled layer `layer` gives the number of the item at each token, which the source `records` reads from `links` in the
    file of captions. Gives `links/<set>` (B, E, 2), pairs of (column, item), -1 for none. If `mismatch_items` shows a picture
    with fewer items, numbers begin again at 0, so a link does not tell that the picture is a wrong one; of a picture without
    items there are no links. Put it behind the edits that move tokens and `mismatch_items`.

    A link does not depend on whether `mask` hides its token.
    """

    set: str = "regions"
    layer: str = "linked"
    tokens: Literal["all", "first"] = "all"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", f"layers/{self.layer}", f"labels/{self.layer}", f"item_length/{self.set}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"links/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        labels, count = rows[f"labels/{self.layer}"], rows[f"item_length/{self.set}"]
        inside = (labels > 0) & columns_before(rows["length"], labels.shape[1]) & (count > 0)[:, None]
        row, column = rows_and_columns(inside if self.tokens == "all" else inside & begins(rows, self.layer))
        item = (labels[row, column] - 1) % count[row]
        return rows.having_all({f"links/{self.set}": links_of(row, column, item, rows.count)})
