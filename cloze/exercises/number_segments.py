"""Give the parts of a row their segments by the separators between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cloze.bounds import Natural
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.facts import TokenFacts, needed
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before


@register("edit", "number_segments")
@dataclass(frozen=True)
class NumberSegments(Edit):
    """Replace `segments` (B, L): the tokens up to the first `separator` have the first of the numbers `segments`, those up to the
    next one the second, and so on; all further parts have the last number. A separator that ends the row begins no part.

    A separator belongs to the part before it, as in BERT and before the [MASK] of VL-BERT's answers (jackroos/VL-BERT,
    `vqa/modules/resnet_vlbert_for_vqa.py`), or with `opens` to the part after it, as in UNITER's rows of VCR (ChenRocks/UNITER,
    `data/vcr.py`). Put it behind the frame. A checkpoint keeps this edit, so all commands read these segments.
    """

    shows: ClassVar[bool] = True

    segments: tuple[Natural, ...] = (0, 1)
    separator: str = "[SEP]"
    opens: bool = False
    tokenizer: Given[TokenFacts | None] = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.segments:
            raise RecipeError("number_segments: segments is empty; expected a number for each part of a row, such as [0, 1].")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length"})

    @property
    def gives(self) -> frozenset[str]:
        return frozenset({"segments"})

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens = rows["tokens"]
        is_separator = tokens == needed(self.tokenizer, "number_segments").role(self.separator)
        begins = is_separator & columns_before(rows["length"] - 1, tokens.shape[1])  # the last token of a row begins no part
        part = begins.cumsum(axis=1) - (0 if self.opens else begins)
        numbers = np.array(self.segments, np.int32)
        return rows.having_all({"segments": numbers[np.minimum(part, len(numbers) - 1)]})
