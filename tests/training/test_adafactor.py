"""Adafactor against its own arithmetic, written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from cloze.errors import CheckpointError
from cloze.training.checkpoints.state import gather_optimizer, load_optimizer
from cloze.training.optimizers.adafactor import Adafactor


def optimizer(module: nn.Module, **options: object) -> torch.optim.Optimizer:
    made = Adafactor(**options).build(module.named_parameters())  # type: ignore[arg-type]
    for group in made.param_groups:
        group["lr"] = 0.01
    return made


def test_one_step_of_a_small_matrix_by_hand() -> None:
    module = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[3.0, 4.0]]))
    module.weight.grad = torch.tensor([[0.5, -2.0]])
    optimizer(module).step()
    # the first share is 1, so U is the sign of the gradient and its RMS is 1; RMS(W) = √12.5
    step = 0.01 * math.sqrt(12.5)
    assert module.weight.flatten().tolist() == pytest.approx([3.0 - step, 4.0 + step], rel=1e-6)


def test_small_weights_move_by_the_second_epsilon() -> None:
    module = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(module.weight)
    module.weight.grad = torch.tensor([[1.0, -1.0]])
    optimizer(module).step()
    assert module.weight.flatten().tolist() == pytest.approx([-1e-5, 1e-5])


def test_the_second_step_mixes_by_the_decay_of_its_number() -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.ones_(module.weight)
    made = optimizer(module, relative=False)
    for gradient in (1.0, 2.0):
        module.weight.grad = torch.tensor([[gradient]])
        made.step()
    share = 2**-0.8
    unclipped = 2.0 / math.sqrt(1.0 * (1 - share) + 4.0 * share)
    assert unclipped > 1.0
    assert module.weight.item() == pytest.approx(1.0 - 0.01 - 0.01, rel=1e-6)  # clipped to RMS 1
    free = nn.Linear(1, 1, bias=False)
    nn.init.ones_(free.weight)
    made = optimizer(free, relative=False, clip=10.0)
    for gradient in (1.0, 2.0):
        free.weight.grad = torch.tensor([[gradient]])
        made.step()
    assert free.weight.item() == pytest.approx(1.0 - 0.01 * (1.0 + unclipped), rel=1e-6)


def test_a_large_matrix_keeps_a_row_and_a_column_and_steps_as_transformers_does() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    ours, theirs = nn.Linear(130, 140), nn.Linear(130, 140)
    theirs.load_state_dict(ours.state_dict())
    mine = optimizer(ours)
    other = transformers.Adafactor(
        theirs.parameters(), lr=0.01, scale_parameter=True, relative_step=False, warmup_init=False
    )  # fmt: skip
    for _ in range(4):
        gradient, offset = torch.randn(140, 130), torch.randn(140)
        for module in (ours, theirs):
            module.weight.grad, module.bias.grad = gradient.clone(), offset.clone()
        mine.step()
        other.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(ours.bias, theirs.bias, rtol=1e-5, atol=1e-7)
    state = mine.state[ours.weight]
    assert (state["row"].shape, state["column"].shape) == ((1, 140), (1, 130))
    assert "square" not in state and mine.state[ours.bias]["square"].shape == (140,)


def test_a_matrix_with_one_small_side_keeps_its_square_whole() -> None:
    narrow = nn.Linear(127, 140, bias=False)
    made = optimizer(narrow)
    narrow.weight.grad = torch.ones(140, 127)
    made.step()
    state = made.state[narrow.weight]
    assert "row" not in state and state["square"].shape == (140, 127)


def test_stacked_projections_move_like_the_matrices_they_stack() -> None:
    torch.manual_seed(1)
    stacked, apart = nn.ModuleDict({"projections": nn.Linear(4, 12)}), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    gradient, offset = torch.randn(12, 4), torch.randn(12)
    with torch.no_grad():
        for part, scale in zip(apart, (0.1, 1.0, 5.0), strict=True):
            part.weight.mul_(scale)
        stacked["projections"].weight.copy_(torch.cat([part.weight for part in apart]))
        stacked["projections"].bias.copy_(torch.cat([part.bias for part in apart]))
    stacked["projections"].weight.grad, stacked["projections"].bias.grad = gradient, offset
    for number, part in enumerate(apart):
        part.weight.grad, part.bias.grad = gradient[4 * number : 4 * number + 4], offset[4 * number : 4 * number + 4]
    optimizer(stacked).step()
    optimizer(apart).step()
    torch.testing.assert_close(stacked["projections"].weight, torch.cat([part.weight for part in apart]))
    torch.testing.assert_close(stacked["projections"].bias, torch.cat([part.bias for part in apart]))


def test_its_state_is_saved_and_resumed_exactly() -> None:
    torch.manual_seed(2)
    whole = nn.ModuleDict({"dense": nn.Linear(128, 129), "projections": nn.Linear(128, 384)})
    again = nn.ModuleDict({"dense": nn.Linear(128, 129), "projections": nn.Linear(128, 384)})
    first, second = optimizer(whole), optimizer(again)
    gradients = [[torch.randn(p.shape) for p in whole.parameters()] for _ in range(3)]
    for number, step in enumerate(gradients):
        if number == 2:
            again.load_state_dict(whole.state_dict())
            load_optimizer(second, again, gather_optimizer(first, whole), where="here")
            for parameter, gradient in zip(again.parameters(), step, strict=True):
                parameter.grad = gradient.clone()
            second.step()
        for parameter, gradient in zip(whole.parameters(), step, strict=True):
            parameter.grad = gradient.clone()
        first.step()
    for one, other in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_state_of_another_shape_is_refused() -> None:
    module = nn.Linear(128, 129)
    state = {"weight:row": torch.zeros(1, 77)}
    with pytest.raises(CheckpointError, match="does not fit"):
        load_optimizer(optimizer(module), module, state, where="here")
