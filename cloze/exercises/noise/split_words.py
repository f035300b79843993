"""Mark further pieces as starts of words."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Callable, Mapping
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


def _is_mark_of_unicode(piece: str) -> bool:
    """Whether a piece is one mark, control character or space, as BERT's tokenizer tells them: `$` and `^` are marks, too."""
    if len(piece) != 1:
        return False
    category = unicodedata.category(piece)
    return piece in string.punctuation or category[0] in "PC" or category == "Zs"


_STARTS: Mapping[str, Callable[[str], bool]] = {
    "marks": _MARKS.__contains__,
    "foreign": lambda piece: not _PLAIN.issuperset(piece.lower()),
    "unicode": _is_mark_of_unicode,
}


@register("edit", "split_words")
@dataclass(frozen=True)
class SplitWords(Edit):
    """Let words also start at `pieces` of these kinds: `marks`, single punctuation marks, and `foreign`, pieces with a character
    that is neither a mark nor one of the letters a to z or A to Z (google-research/albert `create_pretraining_data.py`,
    `_is_start_piece_sp`); or `unicode`, single punctuation marks of all scripts (microsoft/DeBERTa `spm_tokenizer.py`,
    `part_of_whole_word`).

    Gives `word_start` (B, L), which whole words, n-grams and spans use. The marks are those of ASCII except `'`, `<`, `=` and
    `>`, which are foreign, as in ALBERT's code; `unicode` has all of them, and single spaces and control characters, too.
    """

    pieces: tuple[Literal["marks", "foreign", "unicode"], ...] = ("marks", "foreign")
    tokenizer: Given[TokenFacts | None] = None

    def __post_init__(self) -> None:
        if not self.pieces or set(self.pieces) - set(_STARTS):
            raise RecipeError(f"split_words: pieces is {list(self.pieces)}; expected marks, foreign, unicode or several of them.")

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
        starts = np.zeros(len(spellings), bool)
        for kind in self.pieces:
            starts |= np.array([_STARTS[kind](piece) for piece in spellings])
        return starts

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        return rows.having(word_start=rows["word_start"] | self._starts.take(rows["tokens"]))
