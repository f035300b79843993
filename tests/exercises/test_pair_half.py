"""Pairs in the second half of running text: cuts at sentence borders, text from elsewhere, what fits."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.companions.pair_half import PairHalf
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

COUNT, LENGTH, HALF = 3000, 61, 32  # with three tokens more a row has 64


def running(count: int = COUNT, length: int = LENGTH, sentence: int = 7, elsewhere: int = 9) -> Rows:
    """Tokens 100, 101, … in sentences of `sentence` tokens; next to them 1000, 1001, … in sentences of `elsewhere` tokens."""
    columns = np.arange(length)

    def rows(value: np.ndarray) -> np.ndarray:
        return np.tile(value.astype(np.int32), (count, 1))

    full = np.full(count, length, np.int32)
    return Rows({
        "tokens": rows(100 + columns), "length": full, "sentence": rows(columns // sentence),
        "distractor.tokens": rows(1000 + columns), "distractor.length": full, "distractor.sentence": rows(columns // elsewhere),
    })


def made(rows: Rows, elsewhere: float = 0.5) -> tuple[Rows, np.ndarray, np.ndarray]:
    """The edited rows, their parts and which of them have a B from elsewhere."""
    out = PairHalf(elsewhere=elsewhere)(rows, Draw(row_keys(3, "main", 0, items=np.arange(rows.count))))
    parts = out["parts"]
    return out, parts, parts[:, 1, 0] >= rows["tokens"].shape[1]


def test_a_second_segment_goes_on_at_a_sentence_border_of_the_second_half_and_ends_with_the_row() -> None:
    _, parts, away = made(running(), elsewhere=0.0)
    assert not away.any() and (parts[:, 0, 0] == 0).all()
    assert (parts[:, 0, 1] == parts[:, 1, 0]).all() and (parts[:, 1, 1] == LENGTH).all()
    borders, counts = np.unique(parts[:, 1, 0], return_counts=True)
    assert borders.tolist() == [35, 42, 49, 56] and np.abs(counts / COUNT - 0.25).max() < 0.03


def test_half_of_the_second_segments_are_whole_sentences_from_elsewhere_as_far_as_there_is_room() -> None:
    out, parts, away = made(running())
    assert abs(away.mean() - 0.5) < 0.03
    first, second = parts[:, 0, 1] - HALF, parts[:, 1, 1] - parts[:, 1, 0]
    assert (parts[away, 1, 0] == LENGTH).all() and (out["tokens"][:, LENGTH] == 1000).all()
    # 29 tokens for both. A of 3 leaves 26: three sentences of 9; A of 10 leaves 19: three; of 17: two; of 24: one.
    found = {(int(a), int(b)) for a, b in zip(first[away], second[away], strict=True)}
    assert found == {(3, 26), (10, 19), (15, 14), (20, 9)}


def test_without_a_border_in_the_second_half_the_second_segment_comes_from_elsewhere() -> None:
    _, parts, away = made(running(sentence=100), elsewhere=0.0)
    assert away.all() and (parts[:, 0, 1] - HALF == 20).all() and (parts[:, 1, 1] - parts[:, 1, 0] == 9).all()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 9])
def test_short_rows_stay_within_their_length(length: int) -> None:
    _, parts, _ = made(running(count=50, length=length, sentence=2, elsewhere=2))
    sizes = parts[:, :, 1] - parts[:, :, 0]
    assert (sizes >= 0).all() and (sizes.sum(1) <= length).all() and (sizes[:, 0] >= 1).all()


def test_a_share_beyond_all_rows_is_refused() -> None:
    with pytest.raises(RecipeError, match="pair_half: elsewhere is 1.5; expected a fraction of the rows"):
        PairHalf(elsewhere=1.5)
