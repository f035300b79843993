"""Show a text as it is spoken: recordings of its words take the place of their tokens (SpeechBERT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.layer_units import begins
from cloze.exercises.tables import links_of
from cloze.exercises.units.unit_request import columns_of
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true, rows_and_columns


@register("edit", "speak")
@dataclass(frozen=True)
class Speak(Edit):
    """Link the words of a text with the items of the set that are their recordings (Chuang et al., SpeechBERT, 2020, §3).

    The labelled layer `layer` gives the number of the recording at each token, which the source `records` reads from `links` in
    the file of texts. Rows without items stay as they are. With `pieces: first` a recorded text consists of its recordings: each
    has one position, that of the first token of its word, and all other tokens of the text are dropped; a token that `corrupt`
    has changed has no link, so its recording is hidden. With `pieces: all` the text stays, and all tokens of a word are linked.
    Gives `links/<set>`, pairs of a token and an item. Put it behind `frame`, `mask` and `corrupt`, and before `predict`.
    """

    set: str = "sounds"
    pieces: Literal["first", "all"] = "first"
    layer: str = "linked"

    @property
    def takes(self) -> frozenset[str]:
        layers = {f"layers/{self.layer}", f"labels/{self.layer}"}
        return frozenset({"tokens", "length", "special", f"item_length/{self.set}", *layers})

    @property
    def optional(self) -> frozenset[str]:
        """What shows which tokens were changed."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", f"links/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        spoken = rows[f"item_length/{self.set}"] > 0
        self._require_links(rows, spoken)
        if self.pieces == "first":
            inside = columns_before(rows["length"], rows["tokens"].shape[1])
            mask = inside & (begins(rows, self.layer) | rows["special"] | ~spoken[:, None])
            rows = rows.splice(columns_of(mask), count_true(mask).astype(np.int32))
        linked = self._linked(rows) & spoken[:, None]
        if self.pieces == "first" and "original" in rows:
            linked &= rows["original"] == rows["tokens"]
        row, column = rows_and_columns(linked)
        item = rows[f"labels/{self.layer}"][row, column] - 1
        return rows.having_all({f"links/{self.set}": links_of(row, column, item, rows.count)})

    def _linked(self, rows: Rows) -> NDArray[np.bool_]:
        """Which tokens have a recording (B, L)."""
        linked: NDArray[np.bool_] = (rows[f"labels/{self.layer}"] > 0) & ~rows["special"]
        return linked & columns_before(rows["length"], linked.shape[1])

    def _require_links(self, rows: Rows, spoken: NDArray[np.bool_]) -> None:
        silent = np.flatnonzero(spoken & ~self._linked(rows).any(1) & (rows["length"] > count_true(rows["special"])))
        if len(silent):
            raise RecipeError(
                f"speak: a text has {rows[f'item_length/{self.set}'][silent[0]]} recordings {self.set!r}, and nothing says which "
                "words they are of.\n  Build the store from the texts that cloze corpus sounds writes next to the recordings: "
                "OUT.SOURCE.jsonl"
            )
