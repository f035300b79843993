"""Show a text as it is spoken: recordings of its words take the place of their tokens (SpeechBERT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import columns_of
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true


@register("edit", "speak")
@dataclass(frozen=True)
class Speak(Edit):
    """Link the words of a text with the items of the set, the recordings of these words in their order (Chuang et al.,
    SpeechBERT, 2020, §3).

    With `pieces: first` a recorded word has one position, that of its first token, and its other tokens are dropped; a token
    that `corrupt` has changed has no link, so its recording is hidden. With `pieces: all` the text stays, and all tokens of a
    word are linked. Rows without items stay as they are. Gives `links/<set>`, pairs of a token and an item. Put it behind
    `frame`, `mask` and `corrupt`, and before `predict`.
    """

    set: str = "sounds"
    pieces: Literal["first", "all"] = "first"

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "word_start", "special", f"item_length/{self.set}"})

    @property
    def optional(self) -> frozenset[str]:
        """What shows which tokens were changed."""
        return frozenset({"original"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", f"links/{self.set}"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        spoken = rows[f"item_length/{self.set}"] > 0
        self._require_words(rows, spoken)
        if self.pieces == "first":
            inside = columns_before(rows["length"], rows["tokens"].shape[1])
            mask = inside & (_begins(rows) | rows["special"] | ~spoken[:, None])
            rows = rows.splice(columns_of(mask), count_true(mask).astype(np.int32))
        linked = columns_before(rows["length"], rows["tokens"].shape[1]) & ~rows["special"] & spoken[:, None]
        item = np.cumsum(_begins(rows), axis=1) - 1
        if self.pieces == "first" and "original" in rows:
            linked &= rows["original"] == rows["tokens"]
        columns = columns_of(linked)
        pairs = np.stack([columns, np.take_along_axis(item, columns, 1)], axis=2)
        real = columns_before(count_true(linked), columns.shape[1])
        return rows.having_all({f"links/{self.set}": np.where(real[..., None], pairs, -1).astype(np.int32)})

    def _require_words(self, rows: Rows, spoken: NDArray[np.bool_]) -> None:
        words = count_true(_begins(rows))
        recorded: NDArray[Any] = rows[f"item_length/{self.set}"]
        wrong = np.flatnonzero(spoken & (words != recorded))
        if len(wrong):
            raise RecipeError(
                f"speak: a text has {words[wrong[0]]} words and {recorded[wrong[0]]} recordings {self.set!r}; expected one of "
                "each word.\n  Write texts without punctuation, because the tokenizer takes it for words, and leave room for the "
                "longest."
            )


def _begins(rows: Rows) -> NDArray[np.bool_]:
    """Where a word of the text begins (B, L)."""
    starts: NDArray[np.bool_] = rows["word_start"] & ~rows["special"] & columns_before(rows["length"], rows["tokens"].shape[1])
    return starts
