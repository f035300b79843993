"""Inverse cloze task: a sentence of a passage is the query for that passage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.units.unit_request import slots
from cloze.registry import register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before, rows_and_columns


@register("edit", "inverse_cloze")
@dataclass(frozen=True)
class InverseCloze(Edit):
    """Keep a random sentence of each row as the query; the row becomes the view `to`, the passage (Lee et al.,
    2019, "Latent Retrieval for Weakly Supervised Open Domain Question Answering", §4; Chang et al., 2020, §3).

    With probability `keep` the passage keeps the sentence, so that word overlap is learned, too. If a row has one sentence, its
    first half is the query and its second half the passage. Put a frame in each view after it.
    """

    to: str = "passage"
    keep: Share = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise RecipeError(f"inverse_cloze: keep is {self.keep}; expected a fraction of the rows, from 0 to 1.")

    @property
    def makes(self) -> str:
        return self.to

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "sentence"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({f"{self.to}.tokens", f"{self.to}.length"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens, length = rows["tokens"], rows["length"].astype(np.int64)
        inside = columns_before(length, tokens.shape[1])
        sentence = np.where(inside, rows["sentence"], -1)
        border = inside.copy()
        border[:, 1:] &= sentence[:, 1:] != sentence[:, :-1]
        number = np.where(inside, np.cumsum(border, axis=1) - 1, -1)  # the number of its sentence, from 0 in every row
        count = border.sum(1)
        chosen = number == draw.integers("inverse_cloze", np.maximum(count, 1))[:, None]
        alone = columns_before((length + 1) // 2, tokens.shape[1])
        chosen = np.where((count < 2)[:, None], alone, chosen) & inside
        stays = (draw.uniform("inverse_cloze.keep") < self.keep) & (count > 1)
        rest = inside & (~chosen | stays[:, None])
        query = Rows({**without_text(rows), **gathered(tokens, chosen)}, checked=True)
        return query.with_view(self.to, gathered(tokens, rest))


def without_text(rows: Rows) -> Rows:
    """Rows without the fields that refer to positions of tokens."""
    return rows.without("sentence", *(name for name in ("word_start",) if name in rows))


def gathered(tokens: NDArray[np.int32], chosen: NDArray[np.bool_]) -> Rows:
    """The chosen tokens of every row, adjacent."""
    row, column = rows_and_columns(chosen)
    length = np.bincount(row, minlength=len(tokens))
    ids = np.zeros((len(tokens), max(int(length.max(initial=0)), 1)), np.int32)
    ids[row, slots(length)] = tokens[row, column]
    return Rows({"tokens": ids, "length": length.astype(np.int32)}, checked=True)
