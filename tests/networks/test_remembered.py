"""Rows that a network has read are not read again while its parameters stay the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from cloze.networks import Transformer
from cloze.networks.clock import Clock
from cloze.networks.remembered import remembering

ROWS = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 1]]


class Counting(Transformer):
    """Counts the batches that it reads."""

    batches = 0

    def forward(self, **inputs: Any) -> Any:
        self.batches += 1
        return super().forward(**inputs)


@pytest.fixture
def network() -> Iterator[Counting]:
    torch.manual_seed(0)
    network = Counting(layers=2, width=8, heads=2, vocab_size=10, segments=2, clock=Clock()).eval()
    with remembering([network]):
        yield network
    assert network.remembered is None


def batch_of(rows: list[list[int]], length: int = 0) -> dict[str, Tensor]:
    """Rows with padding."""
    length = max(length, *map(len, rows))
    tokens = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    block = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return {"tokens": tokens, "block": block, "segments": torch.zeros_like(tokens)}


@torch.no_grad()
def read(network: Counting, rows: list[list[int]], *want: str, length: int = 0, **more: Any) -> Mapping[str, Tensor]:
    states: Mapping[str, Tensor] = network(want=frozenset(want), order="open", **{**batch_of(rows, length), **more})
    return states


def test_rows_in_other_batches_have_the_states_that_they_had(network: Counting) -> None:
    read(network, ROWS[:2], "hidden", "summary")
    read(network, ROWS[2:], "hidden", "summary")
    rows = [ROWS[2], ROWS[0]]
    again = read(network, rows, "hidden", "summary", length=7)
    assert network.batches == 2
    network.remembered = None
    fresh = read(network, rows, "hidden", "summary", length=7)
    torch.testing.assert_close(again["summary"], fresh["summary"])
    for number, row in enumerate(rows):
        torch.testing.assert_close(again["hidden"][number, : len(row)], fresh["hidden"][number, : len(row)])
    assert again["hidden"].shape == fresh["hidden"].shape == (2, 7, 8) and not again["hidden"][0, 3:].any()


def test_a_batch_without_padding_has_no_block_and_the_same_rows(network: Counting) -> None:
    read(network, ROWS, "summary", positions=torch.zeros(0, dtype=torch.long))
    tokens = torch.tensor(ROWS[:1])
    with torch.no_grad():
        network(want=frozenset({"summary"}), tokens=tokens, segments=torch.zeros_like(tokens), summaries=torch.tensor([0]))
    assert network.batches == 2  # the order is a part of what is read
    read(network, ROWS[:1], "summary", summaries=torch.tensor([0]))
    assert network.batches == 2


def test_another_row_segment_summary_or_state_is_read(network: Counting) -> None:
    read(network, ROWS, "summary")
    others = [
        {"segments": torch.ones(1, 5, dtype=torch.long)},
        {"summaries": torch.tensor([4])},
        {"tokens": torch.tensor([[1, 2, 3, 4, 6]])},
    ]
    for number, more in enumerate(others):
        read(network, ROWS[:1], "summary", **more)
        assert network.batches == 2 + number
    read(network, ROWS[:1], "hidden")
    read(network, ROWS[:1], "layers")
    read(network, ROWS[:1], "layers")
    read(network, ROWS[:1], "hidden", positions=torch.tensor([1]))
    assert network.batches == 8


def test_a_changed_parameter_makes_it_forget_everything(network: Counting) -> None:
    before = read(network, ROWS, "summary")["summary"]
    with torch.no_grad():
        network.embeddings.tokens.weight.add_(torch.randn(10, 8))
    after = read(network, ROWS, "summary")["summary"]
    assert network.batches == 2 and not torch.allclose(before, after)


def test_nothing_is_remembered_in_training_or_with_gradients(network: Counting) -> None:
    read(network, ROWS, "summary")
    assert network(want=frozenset({"summary"}), order="open", **batch_of(ROWS))["summary"].requires_grad
    network.train()
    read(network, ROWS, "summary")
    assert network.batches == 3
