"""How a batch reaches a network that reads two sequences."""

from __future__ import annotations

import pytest
import torch

from cloze.batch import Batch
from cloze.networks import Clock, EncoderDecoder, PairAttention
from cloze.networks.routing import routed, seen_by


def two(prefix: str = "", second: str = "decoder") -> Batch:
    """A batch of one view with a second sequence, which has targets."""
    return Batch({
        f"{prefix}tokens": torch.ones(2, 3, dtype=torch.long), f"{prefix}{second}.tokens": torch.ones(2, 4, dtype=torch.long),
        f"{prefix}{second}.block": torch.ones(2, 4, dtype=torch.long),
        f"{prefix}{second}.targets/main": torch.tensor([5]), f"{prefix}{second}.positions/main": torch.tensor([6]),
        f"{prefix}targets/label": torch.tensor([1, 0]), f"{prefix}positions/label": torch.tensor([0, 1]),
    })  # fmt: skip


@pytest.mark.parametrize("view", ["main", "hole"])
def test_a_network_that_writes_has_the_second_sequence_as_one_argument_and_its_targets_as_its_own(view: str) -> None:
    network = EncoderDecoder(layers=1, width=8, heads=2, vocab_size=9, clock=Clock())
    batch = two("" if view == "main" else f"{view}.")
    seen = seen_by(network, batch, view)
    assert seen["targets/main"].tolist() == [5] and seen["positions/main"].tolist() == [6]
    assert seen["targets/label"].tolist() == [1, 0] and seen["tokens"].shape == (2, 3)
    given = routed(network, seen, "open")
    assert given.keys() == {"tokens", "decoder", "order"} and given["decoder"].position_ids is None
    assert given["decoder"].tokens.shape == given["decoder"].block.shape == (2, 4)


def test_a_network_that_writes_nothing_learns_from_the_targets_of_its_view_alone() -> None:
    network = PairAttention(width=4, vocab_size=9)
    seen = seen_by(network, two(second="other"), "main")
    assert "targets/main" not in seen and seen["targets/label"].tolist() == [1, 0]
    assert routed(network, seen, "open").keys() == {"tokens", "other"}
    assert "decoder.tokens" not in seen_by(network, two(), "main")


def test_both_sequences_count_as_cells_of_the_batch() -> None:
    assert sorted(two().shapes()) == [(2, 3), (2, 4)]
