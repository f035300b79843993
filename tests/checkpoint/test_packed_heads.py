"""Rows that hold several texts, for heads that take a row for one."""

from __future__ import annotations

import pytest

from cloze.checkpoint.build import _require_rows_of_several_texts
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import classify


def test_a_head_that_reads_a_row_as_one_text_is_refused_with_packing() -> None:
    by_mean, by_token = (classify(classes=2, reading=reading, width=8, clock=Clock()) for reading in ("mean", "hidden"))
    with pytest.raises(RecipeError, match="mean: reads each row as one text, and training.packing puts several into a row"):
        _require_rows_of_several_texts({"token": by_token, "mean": by_mean})
    _require_rows_of_several_texts({"token": by_token})
