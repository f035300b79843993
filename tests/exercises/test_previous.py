"""Asking for the token before each token, as a language model from right to left does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.targets.predict import Predict
from cloze.rows import Rows


def test_predict_previous_asks_at_every_token_but_the_first(draw: Any) -> None:
    rows = Rows({"tokens": np.array([[5, 6, 7, 0], [8, 9, 0, 0]], np.int32), "length": np.array([3, 2], np.int32)})
    out = Predict(what="previous", set="back")(rows, draw(2))
    assert out["positions/back"].tolist() == [[1, 2, -1], [1, -1, -1]]
    assert out["targets/back"][0, :2].tolist() == [5, 6]
    assert out["targets/back"][1, 0] == 8


def test_it_is_the_next_token_of_the_row_turned_round(draw: Any) -> None:
    tokens = np.arange(1, 8, dtype=np.int32)[None]
    length = np.array([7], np.int32)
    back = Predict(what="previous")(Rows({"tokens": tokens, "length": length}), draw(1))
    ahead = Predict(what="next")(Rows({"tokens": tokens[:, ::-1].copy(), "length": length}), draw(1))
    assert (6 - back["positions/main"][0])[::-1].tolist() == ahead["positions/main"][0].tolist()
    assert back["targets/main"][0, ::-1].tolist() == ahead["targets/main"][0].tolist()


def test_a_shift_is_refused() -> None:
    with pytest.raises(RecipeError, match="by one position already"):
        Predict(what="previous", shift=1)
