"""Choose the summary token of a row if it is not the first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.reading import SummaryToken
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before


@register("edit", "summarise")
@dataclass(frozen=True)
class Summarise(Edit):
    """Choose the summary token of a row: its `first` or its `last` token (GPT, XLNet: the last), or its last [MASK] (`mask`),
    which the frame puts there: the answers of VL-BERT and VisualBERT are read at one."""

    by: SummaryToken = "last"
    tokenizer: Given[TokenFacts | None] = field(default=None, repr=False, compare=False)

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"length", "tokens"} if self.by == "mask" else {"length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"summary"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        mask = needed(self.tokenizer, "summarise").role("[MASK]") if self.by == "mask" else -1
        return rows.having_all({"summary": summary_columns(self.by, rows.get("tokens"), rows["length"], mask)})


def summary_columns(by: str, tokens: NDArray[Any] | None, length: NDArray[Any], mask: int) -> NDArray[np.int64]:
    """The column of the summary token of every row of tokens (B, L); `mask` is the id of [MASK]. A `RecipeError` if it has to be
    the last [MASK] and a row has none."""
    if by != "mask" or tokens is None:
        last = np.maximum(length.astype(np.int64) - 1, 0)
        return last if by == "last" else np.zeros_like(last)
    is_mask = (tokens == mask) & columns_before(length, tokens.shape[1])
    if not is_mask.any(axis=1).all():
        raise RecipeError(
            "summary: mask is the state of the last [MASK] of a row, and a row has none.\n"
            '  Write one into the templates of `reading`: {single: "[CLS] {A} [MASK] [SEP]", summary: mask}'
        )
    columns: NDArray[np.int64] = tokens.shape[1] - 1 - is_mask[:, ::-1].argmax(axis=1)
    return columns
