"""Recordings are written again from their vectors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks.cost import Operations
from cloze.objectives import reconstruct

WIDTH, BANDS, FRAMES = 5, 3, 4


def test_the_loss_is_the_mean_squared_error_of_a_gru_that_reads_the_vector_at_every_step() -> None:
    torch.manual_seed(0)
    objective, gru = reconstruct(numbers=FRAMES * BANDS, frames=FRAMES, width=WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
    cell = objective.head.recurrence
    for theirs, ours in (("ih", cell.input), ("hh", cell.recurrent)):
        gru.get_parameter(f"weight_{theirs}_l0").data.copy_(ours.weight.data)
        gru.get_parameter(f"bias_{theirs}_l0").data.copy_(ours.bias.data)
    vectors, frames = torch.randn(1, 2, WIDTH), torch.randn(2, FRAMES * BANDS)
    batch = Batch({"values/features": frames, "positions/features": torch.tensor([1, 0])})
    states, _ = gru(vectors[0, [1, 0]][:, None].expand(-1, FRAMES, -1))
    expected = (objective.head.output(states).flatten(1) - frames).square().mean(1).sum()
    torch.testing.assert_close(objective({"hidden": vectors}, batch).total, expected)


def test_products_are_counted() -> None:
    objective = reconstruct(numbers=FRAMES * BANDS, frames=FRAMES, width=WIDTH).double().requires_grad_(False)
    batch = Batch({"values/features": torch.zeros(2, FRAMES * BANDS).double(), "positions/features": torch.tensor([0, 1])})
    counted = Operations(gradients=False)
    objective.count_operations(counted, batch)
    with FlopCounterMode(display=False) as counter:
        objective({"hidden": torch.randn(1, 2, WIDTH).double()}, batch)
    assert counted.total == counter.get_total_flops()


def test_frames_that_do_not_fill_a_recording_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"reconstruct\.frames: 7 frames do not divide the 12 numbers of a recording"):
        reconstruct(numbers=12, frames=7, width=WIDTH)
