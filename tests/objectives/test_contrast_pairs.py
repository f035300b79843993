"""Matching by all pairs of texts and items of a batch."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import nn

from cloze.batch import Batch
from cloze.objectives import ContrastPairs

WIDTH = 4


def batch_of(*rows: list[int]) -> Batch:
    return Batch({"tokens": torch.tensor(rows)})


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_pairs_that_tell_nothing_lose_the_logarithm_of_their_number(rows: int) -> None:
    objective = ContrastPairs(width=WIDTH).double()
    nn.init.zeros_(objective.head.weight)
    loss = objective({"pairs": torch.randn(rows, rows, WIDTH, dtype=torch.double)}, batch_of(*([row] for row in range(rows))))
    assert loss.total.item() / rows == pytest.approx(math.log(rows))


@pytest.mark.parametrize("among", ["items", "texts"])
def test_each_row_is_compared_along_the_axis_that_was_asked_for(among: Literal["items", "texts"]) -> None:
    objective = ContrastPairs(among=among, width=1).double()
    nn.init.ones_(objective.head.weight)
    scores = torch.tensor([[1.0, 2, 0], [0, 3, 1], [4, 0, 2]], dtype=torch.double)
    expected = scores.log_softmax(1 if among == "items" else 0).diagonal().sum()
    found = objective({"pairs": scores[..., None]}, batch_of([1], [2], [3]))
    torch.testing.assert_close(found.total, -expected)
    assert float(found.metrics["correct"]) == (1 if among == "items" else 2)


def test_rows_with_the_same_text_are_no_negatives_of_each_other() -> None:
    objective = ContrastPairs(width=1).double()
    nn.init.ones_(objective.head.weight)
    scores = torch.tensor([[1.0, 9, 0], [9, 1, 0], [2, 3, 4]], dtype=torch.double)
    found = objective({"pairs": scores[..., None]}, batch_of([5], [5], [6]))
    two = math.log(1 + math.exp(-1))
    assert found.total.item() == pytest.approx(2 * two - float(scores[2].log_softmax(0)[2]))
