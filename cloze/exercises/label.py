"""Ask for the answer that a record came with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "label")
@dataclass(frozen=True)
class Label:
    """The answer of a record becomes what is asked: `targets/<set>`.

    `of: row` asks for one answer of the whole row. `of: words` asks for one of each word, at the word's first token; a word of
    which no token is read, and one whose label is not known, is not asked. `of: spans` asks for one of the spans that a record
    marks: `places/<set>` (B, K) are the first and the last token of each, and a row that does not show all of them is not asked.
    `of: texts` asks for one answer of two texts whose tokens are read: `places/<set>` (B, 4) are the first and the last token of
    each; a row that shows nothing of one is not asked. Where `label` gives places it comes before the frame, so that they move
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
        return frozenset({f"targets/{self.set}"} | ({f"places/{self.set}"} if self.of != "row" else set()))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        answers = rows[f"column/{self.column}"]
        if self.of == "row":
            return rows.having_all({f"targets/{self.set}": answers})
        if self.of == "spans":
            return rows.having_all({f"targets/{self.set}": answers, f"places/{self.set}": rows["spans"]})
        if self.of == "texts":
            parts = rows["parts"]
            empty = parts[..., :1] >= parts[..., 1:]
            ends = np.where(empty, -1, np.stack([parts[..., 0], parts[..., 1] - 1], axis=-1))
            return rows.having_all({f"targets/{self.set}": answers, f"places/{self.set}": ends.reshape(len(ends), -1)})
        asked = (rows["words"] >= 0) & (answers >= 0)
        return rows.having_all({
            f"targets/{self.set}": np.where(asked, answers, 0), f"places/{self.set}": np.where(asked, rows["words"], -1),
        })  # fmt: skip
