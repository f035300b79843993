"""The mix of layers: the numbers of the paper, the penalty, the norm over a batch."""

from __future__ import annotations

import pytest
import torch

from cloze.networks.blocks.mix import ScalarMix


def test_a_mix_by_hand() -> None:
    mix = ScalarMix(3).double()
    layers = torch.stack([torch.full((1, 1, 1), float(n), dtype=torch.float64) for n in (1, 2, 3)])
    assert mix(layers).item() == pytest.approx(2.0)  # it begins as the mean
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 1.0, 2.0]))
        mix.gamma.fill_(0.5)
    assert mix.shares.tolist() == pytest.approx([0.090031, 0.244728, 0.665241], abs=1e-6)
    assert mix(layers).item() == pytest.approx(1.287605, abs=1e-6)


def test_the_penalty_by_hand_and_what_a_large_one_does() -> None:
    mix = ScalarMix(3, penalty=0.001).double()
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.1, 0.3, 0.5]))
    assert mix.cost().item() == pytest.approx(3.5e-4)
    mix.penalty = 1e6
    optimizer = torch.optim.SGD([mix.weights], lr=4e-7)
    layers = torch.arange(3.0, dtype=torch.float64).view(3, 1, 1, 1)
    for _ in range(50):
        optimizer.zero_grad()
        (mix.cost() - mix(layers).sum()).backward()
        optimizer.step()
    assert mix.shares.tolist() == pytest.approx([1 / 3] * 3, abs=1e-5)


def test_the_norm_is_one_mean_and_one_deviation_over_the_real_tokens_of_the_batch() -> None:
    torch.manual_seed(0)
    layers = torch.randn(2, 2, 3, 4, dtype=torch.float64) * 5 + 1
    real = torch.tensor([[True, True, False], [True, True, True]])
    mix = ScalarMix(2, norm=True).double()
    expected = torch.stack([(layer - layer[real].mean()) / layer[real].std(correction=0) for layer in layers]).mean(0)
    torch.testing.assert_close(mix(layers, real), expected)
    layers[:, 0, 2] = 1e3  # padding
    torch.testing.assert_close(mix(layers, real)[real], expected[real])
    torch.testing.assert_close(mix(layers[:, 1:])[0], mix(layers[:, 1:], real[1:])[0])
