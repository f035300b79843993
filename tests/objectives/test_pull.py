"""Items are pulled to the vectors of their words."""

from __future__ import annotations

import pytest
import torch

from cloze.batch import Batch
from cloze.objectives import Pull

#: Both items of the first row, one by two tokens, and the first of the second; two items in each row.
BATCH = Batch({"links/sounds": torch.tensor([[1, 0], [2, 1], [3, 1], [6, 2]])})


def test_the_loss_is_the_mean_absolute_difference_of_linked_items_and_words_get_no_gradient() -> None:
    words = torch.zeros(2, 2, 4, requires_grad=True)
    items = torch.tensor([[[1.0, -1, 1, 1], [2, 0, 0, 0]], [[0, 0, 0, 4], [9, 9, 9, 9]]], requires_grad=True)
    found = Pull(width=4)({"item_hidden": items, "word_vectors": words}, BATCH)
    assert found.total.item() == pytest.approx(1 + 0.5 + 1) and float(Pull(width=4).count(BATCH)) == 3
    found.total.backward()
    assert words.grad is None and items.grad is not None and not items.grad[1, 1].any()


def test_an_item_is_right_if_no_other_word_is_nearer() -> None:
    words = torch.tensor([[[0.0, 0], [1, 1]], [[5, 5], [0, 0]]])
    items = torch.tensor([[[0.1, 0], [0.2, 0.2]], [[4.0, 4], [0, 0]]])
    assert float(Pull(width=2)({"item_hidden": items, "word_vectors": words}, BATCH).metrics["correct"]) == 2
    no_links = Batch({"links/sounds": torch.zeros(0, 2, dtype=torch.int64)})
    none = Pull(width=2)({"item_hidden": items, "word_vectors": words}, no_links)
    assert none.total.item() == 0
