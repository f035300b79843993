"""The state of recurrent layers between rows: how long rows are, where the next one goes on, what it is given."""

from __future__ import annotations

import pytest
import torch

from cloze.errors import RecipeError
from cloze.networks.blocks.recurrence.recurrent_state import ends_before, lengths_of, recall_states, remember_states

TOKENS = torch.zeros(2, 5, dtype=torch.long)


def states() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.full((2, 3), float(n)), torch.full((2, 4), n + 0.5).requires_grad_()) for n in (1, 2)]


def test_lengths_count_real_tokens_and_rows_of_several_texts_are_refused() -> None:
    assert lengths_of(None, "net") is None
    found = lengths_of(torch.tensor([[1, 1, 1], [1, 0, 0]]), "net")
    assert found is not None and found.tolist() == [3, 1]
    with pytest.raises(RecipeError, match="net: a row holds several texts"):
        lengths_of(torch.tensor([[1, 1, 2]]), "net")


def test_the_next_row_goes_on_before_the_tokens_it_brings_again() -> None:
    assert ends_before(0, TOKENS, None) is None
    for lengths, ends in ((None, [3, 3]), (torch.tensor([5, 1]), [3, 0])):
        found = ends_before(2, TOKENS, lengths)
        assert found is not None and found.tolist() == ends


def test_what_is_remembered_comes_back_without_gradient_and_restarts_begin_with_zeros() -> None:
    carry = remember_states(states())
    assert list(carry) == ["hidden.0", "cell.0", "hidden.1", "cell.1"]
    assert not any(state.requires_grad for state in carry.values())
    found = recall_states(carry, None, 2)
    assert found is not None
    assert all(torch.equal(a, b) for one, other in zip(found, states(), strict=True) for a, b in zip(one, other, strict=True))
    fresh = recall_states(carry, torch.tensor([True, False]), 2)
    assert fresh is not None
    assert [[float(row[0]) for row in part] for state in fresh for part in state] == [[0, 1], [0, 1.5], [0, 2], [0, 2.5]]


def test_there_is_nothing_to_recall_before_the_first_row() -> None:
    assert recall_states(None, None, 2) is None and recall_states({}, torch.tensor([True]), 2) is None
