"""Drop frequent words at random, and roles always."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Positive
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.units.unit_request import columns_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows


@register("edit", "subsample")
@dataclass(frozen=True)
class Subsample(Edit):
    """Keep a word of frequency f with probability √(t/f) + t/f, at most 1 (word2vec's and fastText's code); t is the `threshold`.

    `formula: paper` uses √(t/f) (Mikolov et al., 2013b, §2.3). f is relative to `of`: the `words` of the
    vocabulary (word2vec) or all `tokens` of the corpus, unknown ones included (fastText). [UNK] and other roles are always
    dropped, so that windows skip them; without a threshold nothing else is dropped. A row may become empty.
    """

    thins: ClassVar[str | None] = "threshold"

    threshold: Positive | None = 1e-3
    formula: Literal["code", "paper"] = "code"
    of: Literal["words", "tokens"] = "words"
    tokenizer: Given[TokenFacts | None] = field(default=None, repr=False, compare=False)
    counts: Given[NDArray[np.int64] | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.threshold is not None and not self.threshold > 0:
            raise RecipeError(f"subsample: threshold {self.threshold}; expected a small frequency, such as 1e-3, or null.")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"tokens"})

    @cached_property
    def keep(self) -> NDArray[np.float64]:
        """The probability of keeping each id (V,): 0 for roles."""
        facts = needed(self.tokenizer, "subsample")
        chance = np.zeros(facts.size)
        words = np.setdiff1d(facts.ordinary, np.fromiter(facts.roles.values(), np.int64, len(facts.roles)))
        chance[words] = 1.0
        if self.threshold is None:
            return chance
        if self.counts is None:
            raise RecipeError("subsample needs the counts of a corpus to run; give it counts=…, or `threshold: null`.")
        counts = np.asarray(self.counts, np.float64)
        total = counts.sum() if self.of == "tokens" else counts[words].sum()
        ratio = self.threshold * total / np.maximum(counts[words], 1)
        chance[words] = np.minimum(np.sqrt(ratio) + (ratio if self.formula == "code" else 0.0), 1.0)
        return chance

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens = rows["tokens"]
        inside = np.arange(tokens.shape[1]) < rows["length"][:, None]
        chance = self.keep[np.where(inside, tokens, 0)]
        stays = inside & (draw.uniform("subsample", tokens.shape[1]) < chance)
        return rows.splice(columns_of(stays), np.count_nonzero(stays, axis=1).astype(np.int32))
