"""Leave out starts of words that no space precedes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows

_SPACES = ("Ġ", "▁")  # of byte-level BPE, and of Unigram


@register("edit", "join_words")
@dataclass(frozen=True)
class JoinWords(Edit):
    """Let words start only at pieces with a space in front and at special tokens, so that marks and endings such as `'s` belong
    to the word before (facebookresearch/fairseq, `gpt2_bpe.py`, `is_beginning_of_word`).

    Gives `word_start` (B, L), which whole words, n-grams and spans use. In a vocabulary whose pieces do not write spaces
    (WordPiece), nothing changes. Differs: the first token of a row starts a word, in the code only the second word does.
    """

    tokenizer: Given[TokenFacts | None] = None

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "word_start"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"word_start"})

    @cached_property
    def _starts(self) -> NDArray[np.bool_]:
        """(V,) the ids that may start a word."""
        facts = needed(self.tokenizer, "join_words")
        spaced = np.array([piece.startswith(_SPACES) for piece in facts.spellings], np.bool_)
        if not spaced.any():
            return np.ones(facts.size, np.bool_)
        spaced[list(facts.roles.values())] = True
        return spaced

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        starts = self._starts.take(rows["tokens"])
        starts[:, :1] = True
        return rows.having(word_start=rows["word_start"] & starts)
