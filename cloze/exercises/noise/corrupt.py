"""Replace masked tokens: by a mask, a random token, the token itself, or one token for a whole span."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count, Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.units.unit_request import slots
from cloze.registry import Given, register
from cloze.rng import Draw, UInt32, integers_below
from cloze.rows import Inserted, Rows, rows_and_columns, true_positions


@register("edit", "corrupt")
@dataclass(frozen=True)
class Corrupt(Edit):
    """Show `[MASK]`, a random token or the token itself at masked positions, with the given probabilities (BERT §3.1: 80/10/10).

    Gives `tokens` as shown and keeps `original`. `per: word` and `per: span` (SpanBERT) make one draw for all masked pieces
    of a word or of a span. `replacements` are `uniform` over the ordinary ids, or drawn by their frequency in the corpus
    (`frequency`, SpanBERT); `frequent` draws only from the ids below that number (CharacterBERT).

    `infill` shortens the row: a span becomes one token, `one_mask` (BART, mask or random token; empty spans, too) or a
    sentinel of its own (`sentinels`, T5). Of the empty spans of a row, the fraction `random`, rounded up, becomes random tokens
    (fairseq `add_insertion_noise`). The field `masked` no longer exists then, so `answer` comes before.

    Differs: random tokens are uniform over the ordinary ids; the authors' code draws special ids too.
    """

    hides: ClassVar[bool] = True

    mask: Share = 0.8
    random: Share = 0.1
    keep: Share = 0.1
    per: Literal["token", "word", "span"] = "token"
    replacements: Literal["uniform", "frequency"] = "uniform"
    frequent: Count | None = None
    infill: Literal["one_mask", "sentinels"] | None = None
    tokenizer: Given[TokenFacts | None] = None
    counts: Given[NDArray[np.int64] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        odds = (self.mask, self.random, self.keep)
        if min(odds) < 0 or abs(sum(odds) - 1) > 1e-6:
            raise RecipeError(
                f"corrupt: mask, random and keep must add up to 1, got {self.mask} + {self.random} + {self.keep}."
            )
        if self.infill == "one_mask" and self.keep > 0:
            raise RecipeError("corrupt: infill: one_mask keeps no token; write mask: 0.9, random: 0.1, keep: 0.")
        if self.infill and self.per != "token":
            raise RecipeError(f"corrupt: infill makes one token of each span, so per: {self.per} changes nothing. Leave it out.")
        if self.infill == "sentinels" and self.mask < 1:
            raise RecipeError(
                "corrupt: infill: sentinels puts a sentinel in place of every span; write mask: 1.0, random: 0.0, keep: 0.0."
            )
        if self.infill == "sentinels" and (self.replacements != "uniform" or self.frequent is not None):
            raise RecipeError("corrupt: infill: sentinels draws no random token; leave out replacements and frequent.")

    @property
    def takes(self) -> frozenset[str]:
        names = frozenset({"tokens", "masked"})
        if self.infill or self.per == "span":
            names |= {"length", "layers/span"} if self.infill else {"layers/span"}
        return names | {"word_start"} if self.per == "word" else names

    @property
    def optional(self) -> frozenset[str]:
        """Fields used if present: empty spans of the unit `infill`."""
        return frozenset({"layers/insert"} if self.infill == "one_mask" else ())

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens"} if self.infill else {"tokens", "original"})

    @property
    def shortens(self) -> bool:
        """Whether the edit may shorten rows."""
        return self.infill is not None

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        facts = needed(self.tokenizer, "corrupt")
        if self.infill:
            return self._infilled(rows, draw, facts)
        original = rows["tokens"]
        at, row, column = true_positions(rows["masked"])
        coin = draw.bits_at("corrupt", row, self._deciding(rows, row, column))
        masks = coin < self.mask * 2.0**32
        inputs = original.take(at)
        np.copyto(inputs, facts.role("[MASK]"), where=masks)
        if self.random:
            swap = (masks ^ (coin < (self.mask + self.random) * 2.0**32)).nonzero()[0]
            inputs[swap] = self._random_ids(draw.bits_at("corrupt.random", row[swap], column[swap]))
        tokens = original.copy()
        tokens.reshape(-1)[at] = inputs
        return rows.having(tokens=tokens, original=original)

    def _deciding(self, rows: Rows, row: NDArray[Any], column: NDArray[Any]) -> NDArray[Any]:
        """The number that addresses the draw of each masked token: equal for tokens that share a draw."""
        if self.per == "token":
            return column
        if self.per == "span":
            return np.asarray(rows["layers/span"][row, column])
        starts = np.where(rows["word_start"], np.arange(rows["tokens"].shape[1]), 0)
        return np.asarray(np.maximum.accumulate(starts, axis=1)[row, column])

    def _random_ids(self, bits: UInt32) -> NDArray[np.int32]:
        """Random ordinary ids."""
        ordinary = self._ordinary
        if self.replacements == "uniform":
            return ordinary[integers_below(bits, len(ordinary))]
        return ordinary[np.searchsorted(self._shares, bits, side="right")]

    @cached_property
    def _ordinary(self) -> NDArray[np.int32]:
        """The ids that random tokens are drawn from."""
        ordinary = needed(self.tokenizer, "corrupt").ordinary
        if self.frequent is None:
            return ordinary
        ids = ordinary[ordinary < self.frequent]
        if not len(ids):
            raise RecipeError(
                f"corrupt.frequent: {self.frequent} leaves no id to draw from; the smallest ordinary one is {ordinary.min()}."
            )
        return ids

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """Boundaries in [0, 2³²) between the ordinary ids, in proportion to their frequency."""
        if self.counts is None:
            raise RecipeError("corrupt: replacements by frequency need the counts of the corpus; give it counts=… (V,).")
        counts = self.counts[self._ordinary].astype(np.float64)
        if not counts.sum() > 0:
            raise RecipeError("corrupt: replacements by frequency, but no ordinary token occurs in the corpus.")
        return np.asarray(np.cumsum(counts)[:-1] / counts.sum() * 2.0**32)

    def _infilled(self, rows: Rows, draw: Draw, facts: TokenFacts) -> Rows:
        """Replace each span by one token: the first is replaced, the others are removed."""
        tokens, masked, span = rows["tokens"].copy(), rows["masked"], rows["layers/span"]
        width = tokens.shape[1]
        head = masked.copy()
        head[:, 1:] &= span[:, 1:] != span[:, :-1]
        row, column = rows_and_columns(head)
        if self.infill == "sentinels":
            tokens[row, column] = facts.sentinel(span[row, column])
        else:
            tokens[row, column] = self._fillers(facts, draw, "corrupt", row, column)
        stays = (head | ~masked) & (np.arange(width) < rows["length"][:, None])
        before = self._empty(rows)
        size = stays + before
        at, row, column = true_positions(stays)
        stop = np.cumsum(size, axis=1)
        length = stop[:, -1].astype(np.int32)
        index = np.zeros((len(tokens), max(int(length.max()), 1)), np.int64)
        index.reshape(-1)[row * index.shape[1] + stop.take(at) - 1] = column
        inserted = None
        if before.any():
            at, column = rows_and_columns(before > 0)
            number = before[at, column]
            at, first = np.repeat(at, number), np.repeat((stop - size)[at, column], number)
            columns = first + np.arange(len(at)) - np.repeat(np.cumsum(number) - number, number)
            inserted = Inserted(at * index.shape[1] + columns, self._empty_fillers(facts, draw, at, columns))
        corrupted = rows.having(tokens=tokens).without("masked", "layers/span", "layers/insert")
        return corrupted.splice(index, length, inserted)

    def _empty(self, rows: Rows) -> NDArray[np.int64]:
        """(B, L) the number of empty spans before each token."""
        if self.infill == "one_mask" and "layers/insert" in rows:
            return rows["layers/insert"].astype(np.int64)
        return np.zeros(rows["tokens"].shape, np.int64)

    def _fillers(
        self, facts: TokenFacts, draw: Draw, name: str, row: NDArray[Any], column: NDArray[Any]
    ) -> NDArray[np.int32]:
        """The token that replaces each span: `[MASK]` or a random token."""
        masks = draw.bits_at(name, row, column) < self.mask * 2.0**32
        words = draw.bits_at(f"{name}.random", row, column)
        return np.where(masks, np.int32(facts.role("[MASK]")), self._random_ids(words))

    def _empty_fillers(
        self, facts: TokenFacts, draw: Draw, row: NDArray[Any], column: NDArray[Any]
    ) -> NDArray[np.int32]:
        """The token for each empty span, listed row by row: a fixed number per row is random."""
        number = np.bincount(row)
        order = np.lexsort((draw.bits_at("corrupt.empty", row, column), row))
        rank = np.empty(len(row), np.int64)
        rank[order] = slots(number)
        fillers = np.full(len(row), facts.role("[MASK]"), np.int32)
        swap = rank < np.ceil(number * self.random - 1e-9)[row]
        fillers[swap] = self._random_ids(draw.bits_at("corrupt.empty.random", row[swap], column[swap]))
        return fillers
