"""Mark further pieces as starts of words."""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows

_MARKS = frozenset(string.punctuation) - frozenset("'<=>")
_PLAIN = frozenset(string.ascii_lowercase) | _MARKS


@register("edit", "split_words")
@dataclass(frozen=True)
class SplitWords(Edit):
    """Let words also start at `pieces` of these kinds: `marks`, single punctuation marks, and `foreign`, pieces with a character
    that is neither a mark nor one of the letters a to z or A to Z (google-research/albert `create_pretraining_data.py`,
    `_is_start_piece_sp`).

    Gives `word_start` (B, L), which whole words, n-grams and spans use. The marks are those of ASCII except `'`, `<`, `=` and
    `>`, which are foreign, as in that code.
    """

    pieces: tuple[Literal["marks", "foreign"], ...] = ("marks", "foreign")
    tokenizer: Given[TokenFacts | None] = None

    def __post_init__(self) -> None:
        if not self.pieces or set(self.pieces) - {"marks", "foreign"}:
            raise RecipeError(f"split_words: pieces is {list(self.pieces)}; expected marks, foreign or both.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "word_start"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"word_start"})

    @cached_property
    def _starts(self) -> NDArray[np.bool_]:
        """(V,) the ids that start a word."""
        spellings = needed(self.tokenizer, "split_words").spellings
        if not spellings:
            raise RecipeError("split_words needs the spelling of tokens, which this tokenizer does not provide.")
        mark = np.array([piece in _MARKS for piece in spellings])
        foreign = np.array([not _PLAIN.issuperset(piece.lower()) for piece in spellings])
        return np.asarray(mark & ("marks" in self.pieces) | foreign & ("foreign" in self.pieces))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.having(word_start=rows["word_start"] | self._starts.take(rows["tokens"]))
