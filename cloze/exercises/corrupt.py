"""Decide what is shown at the masked places: a mask, a random token, or the token itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloze.errors import RecipeError
from cloze.exercises.facts import TokenFacts, needed
from cloze.registry import Given, register
from cloze.rng import Draw, below
from cloze.rows import Rows, where


@register("edit", "corrupt")
@dataclass(frozen=True)
class Corrupt:
    """Show `[MASK]`, a random token or the token itself at masked places, with the given odds (BERT §3.1: 80/10/10).

    Gives `tokens` as shown and keeps `original`. `per: word` makes one draw for all masked pieces of a word.

    Differs: random tokens are uniform over the ordinary ids; the authors' code draws special ids too.
    """

    mask: float = 0.8
    random: float = 0.1
    keep: float = 0.1
    per: Literal["token", "word"] = "token"
    tokenizer: Given[TokenFacts | None] = None

    def __post_init__(self) -> None:
        odds = (self.mask, self.random, self.keep)
        if min(odds) < 0 or abs(sum(odds) - 1) > 1e-6:
            raise RecipeError(
                f"corrupt: mask, random and keep are odds that add up to 1, got {self.mask} + {self.random} + {self.keep}."
            )

    @property
    def takes(self) -> frozenset[str]:
        own = frozenset({"tokens", "masked"})
        return own | {"word_start"} if self.per == "word" else own

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens", "original"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        facts = needed(self.tokenizer, "corrupt")
        original = rows["tokens"]
        row, column = where(rows["masked"])
        deciding = column
        if self.per == "word":
            starts = np.where(rows["word_start"], np.arange(original.shape[1]), 0)
            deciding = np.maximum.accumulate(starts, axis=1)[row, column]
        coin = draw.bits_at("corrupt", row, deciding)
        masks = coin < self.mask * 2.0**32
        shown = np.where(masks, np.int32(facts.role("[MASK]")), original[row, column])
        if self.random:
            swap = np.flatnonzero(~masks & (coin < (self.mask + self.random) * 2.0**32))
            words = draw.bits_at("corrupt.random", row[swap], column[swap])
            shown[swap] = facts.ordinary[below(words, len(facts.ordinary))]
        tokens = original.copy()
        tokens[row, column] = shown
        return rows.having(tokens=tokens, original=original)
