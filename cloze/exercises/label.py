"""Turn the labels of a record into targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.exercises.edit import Edit
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "label")
@dataclass(frozen=True)
class Label(Edit):
    """Turn the labels of a record into targets: gives `targets/<set>`.

    `of: row` makes one target for the whole row. `of: words` makes one for each word, at the word's first token; a word has no
    target if none of its tokens is in the row or its label is unknown. `of: spans` makes one target for the spans that a record
    marks: `positions/<set>` (B, K) are the first and the last token of each span, and a row that does not contain all of them has
    no target. `of: texts` makes one target for two texts: `positions/<set>` (B, 4) are the first and the last token of each text,
    and a row without a token of one of them has no target. Put `label` before `frame` where it gives positions, so that they move
    with the tokens.
    """

    set: str = "label"
    of: Literal["row", "words", "spans", "texts"] = "row"
    column: str = "label"

    @property
    def takes(self) -> frozenset[str]:
        column = f"column/{self.column}"
        taken = {"texts": "parts"}.get(self.of, self.of)
        return frozenset({column} if self.of == "row" else {column, taken, "tokens"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"targets/{self.set}"} | ({f"positions/{self.set}"} if self.of != "row" else set()))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        labels = rows[f"column/{self.column}"]
        if self.of == "row":
            return rows.having_all({f"targets/{self.set}": labels})
        if self.of == "spans":
            return rows.having_all({f"targets/{self.set}": labels, f"positions/{self.set}": rows["spans"]})
        if self.of == "texts":
            parts = rows["parts"]
            empty = parts[..., :1] >= parts[..., 1:]
            ends = np.where(empty, -1, np.stack([parts[..., 0], parts[..., 1] - 1], axis=-1))
            return rows.having_all({f"targets/{self.set}": labels, f"positions/{self.set}": ends.reshape(len(ends), -1)})
        asked = (rows["words"] >= 0) & (labels >= 0)
        return rows.having_all({
            f"targets/{self.set}": np.where(asked, labels, 0), f"positions/{self.set}": np.where(asked, rows["words"], -1),
        })  # fmt: skip
