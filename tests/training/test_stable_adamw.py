"""StableAdamW against the arithmetic of its paper, in plain numbers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from cloze.training.optimizers.optimizers import AdamW
from cloze.training.optimizers.stable_adamw import StableAdamW


def stepped(spec, start, gradients, rate=0.1):
    """A 1 × n matrix after these gradients."""
    parameter = nn.Parameter(torch.tensor([start], dtype=torch.float64))
    optimizer = spec.build([("weight", parameter)])
    optimizer.param_groups[0]["lr"] = rate
    for gradient in gradients:
        parameter.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    return parameter[0].tolist()


def by_hand(start, gradients, *, betas, epsilon, decay, rate=0.1):
    """Algorithm 2 of Wortsman et al. with biased moments and their corrections; also the largest RMS that occurred."""
    theta, u, v, largest = list(start), [0.0] * len(start), [0.0] * len(start), 0.0
    for t, gradient in enumerate(gradients, 1):
        u = [betas[0] * x + (1 - betas[0]) * g for x, g in zip(u, gradient, strict=True)]
        v = [betas[1] * x + (1 - betas[1]) * g * g for x, g in zip(v, gradient, strict=True)]
        mean, square = [x / (1 - betas[0] ** t) for x in u], [x / (1 - betas[1] ** t) for x in v]
        rms = math.sqrt(sum(g * g / max(s, epsilon**2) for g, s in zip(gradient, square, strict=True)) / len(start))
        largest, own = max(largest, rms), rate / max(1.0, rms)
        theta = [
            x - own * decay * x - own * m / (math.sqrt(s) + epsilon) for x, m, s in zip(theta, mean, square, strict=True)
        ]
    return theta, largest


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_it_follows_the_algorithm_of_the_paper_where_gradients_jump(decay):
    start, gradients = [3.0, -4.0, 0.5], [[0.5, -2.0, 0.1], [0.4, -1.0, 0.2], [9.0, 30.0, -0.1], [0.1, 0.1, 0.1]]
    expected, largest = by_hand(start, gradients, betas=(0.9, 0.98), epsilon=1e-6, decay=decay)
    assert largest > 1.2  # the third gradient is clipped
    found = stepped(StableAdamW(betas=(0.9, 0.98), weight_decay=decay), start, gradients)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_tensor_whose_gradients_shrink_moves_as_under_adamw():
    gradients = [[2.0, -1.0], [1.5, -0.5], [1.0, -0.25]]
    options = {"betas": (0.9, 0.99), "epsilon": 1e-6, "weight_decay": 0.1}
    assert stepped(StableAdamW(**options), [1.0, 2.0], gradients) == pytest.approx(
        stepped(AdamW(**options), [1.0, 2.0], gradients), rel=1e-6
    )


def test_each_tensor_has_a_rate_of_its_own():
    calm, wild = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = StableAdamW(weight_decay=0.0).build([("calm", calm), ("wild", wild)])
    optimizer.param_groups[0]["lr"] = 1.0
    for size in (1.0, 100.0):
        before = wild.detach().clone()
        calm.grad, wild.grad = torch.ones(2), torch.full((2,), size)
        optimizer.step()
    assert torch.allclose(calm, torch.tensor([-1.0, -1.0]), atol=1e-4)
    # v = (0.9901 · 1 + 1 · 100²) / 1.9901, RMS = 100 / √v = 1.41; m = (0.9 · 1 + 100) / 1.9
    v = (0.99 + 100.0**2) / 1.99
    assert torch.allclose(before - wild, torch.full((2,), (0.9 + 100.0) / 1.9 / math.sqrt(v) / (100 / math.sqrt(v))), atol=1e-4)
