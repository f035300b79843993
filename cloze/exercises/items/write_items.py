"""Write the items of a row as tokens, such as the visual words of a film."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cloze.bounds import Count
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.exercises.units.unit_request import columns_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, count_true


class _Ids(NamedTuple):
    """The ids of the visual words of a set: the first one, and how many there are."""

    first: int
    size: int


@register("edit", "write_items")
@dataclass(frozen=True)
class WriteItems(Edit):
    """Make a text of the items of a row, the companion `to`: the number n of the array `array` becomes the token `[<set>/n]`
    (visual words; Sun et al., VideoBERT, 2019, §3.2). A template then names it: `[CLS] {A} [>] {video} [SEP]`.

    `steps`: of each row every s-th item, from the first one, is written; s is drawn uniformly from 1 to `steps`, because films
    show the same at different speeds (§3.2). Items with a negative number are left out.
    """

    set: str = "frames"
    array: str = "word"
    to: str = "video"
    steps: Count = 1
    tokenizer: Given[TokenFacts | None] = field(default=None, repr=False, compare=False)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({f"items/{self.set}/{self.array}", f"item_length/{self.set}"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    @cached_property
    def _ids(self) -> _Ids:
        spellings = needed(self.tokenizer, "write_items").spellings
        ids = [number for number, spelling in enumerate(spellings) if spelling.startswith(f"[{self.set}/")]
        if not ids:
            raise RecipeError(
                f"write_items: the vocabulary has no visual words [{self.set}/0], [{self.set}/1], …\n  Make them: cloze vocab "
                f"visual ITEMS.npz --set {self.set} --tokenizer BERT --out WORDS, and build the store with --tokenizer WORDS."
            )
        return _Ids(ids[0], len(ids))

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        numbers = rows[f"items/{self.set}/{self.array}"]
        width = numbers.shape[1]
        if int(numbers.max(initial=-1)) >= self._ids.size:
            raise RecipeError(
                f"write_items: an item has the word {numbers.max()}, and there are {self._ids.size:,} of {self.set!r}.\n"
                "  Build the store with the tokenizer that `cloze vocab visual` wrote with these words."
            )
        step = 1 + draw.integers("write_items", self.steps)
        sampled = np.arange(width) % step[:, None] == 0
        mask = columns_before(rows[f"item_length/{self.set}"], width) & (numbers >= 0) & sampled
        columns = columns_of(mask)
        tokens = np.take_along_axis(numbers, columns, 1) if width else np.zeros_like(columns)
        return rows.having_all({
            f"{self.to}.tokens": (tokens + self._ids.first).astype(np.int32),
            f"{self.to}.length": count_true(mask).astype(np.int32),
        })  # fmt: skip
