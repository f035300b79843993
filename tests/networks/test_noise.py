"""Noise on vectors: normal, only while training, and a function of its address."""

from __future__ import annotations

import pytest
import torch

from cloze.errors import RecipeError
from cloze.networks import LSTM, Clock
from cloze.networks.blocks.recurrence.locked import Noise


def test_it_is_normal_with_the_deviation_that_was_asked_for() -> None:
    added = Noise(0.1, "noise", Clock(seed=1))(torch.zeros(40, 50, 20)).flatten()
    assert abs(float(added.mean())) < 0.002 and float(added.std()) == pytest.approx(0.1, rel=0.02)
    assert float((added.abs() < 0.1).float().mean()) == pytest.approx(0.6827, abs=0.01)
    assert bool(torch.isfinite(added).all())


def test_it_follows_from_the_address_and_not_from_how_rows_are_dealt() -> None:
    clock = Clock(seed=1)
    noise, x = Noise(0.5, "noise", clock), torch.zeros(4, 3, 2)
    whole = noise(x)
    assert torch.equal(whole, noise(x)) and not torch.equal(whole, Noise(0.5, "other", clock)(x))
    clock.set(seed=1, step=0, first_row=2, share=0.0)
    assert torch.equal(noise(x[2:]), whole[2:])
    clock.set(seed=1, step=1, first_row=0, share=0.0)
    assert not torch.equal(noise(x), whole)


def test_nothing_is_added_in_eval_mode() -> None:
    x = torch.ones(2, 3, 4)
    assert Noise(0.5, "noise", Clock()).eval()(x) is x and Noise(0.0, "noise", Clock())(x) is x
    with pytest.raises(RecipeError, match="noise: -1"):
        Noise(-1.0, "noise", Clock())


def test_an_lstm_reads_noisy_vectors_while_training() -> None:
    torch.manual_seed(0)
    network = LSTM(layers=1, width=8, vocab_size=10, noise=0.1, clock=Clock(seed=1))
    tokens, want = torch.arange(6).view(2, 3), frozenset({"hidden"})
    noisy, still = network(want=want, tokens=tokens)["hidden"], network.eval()(want=want, tokens=tokens)["hidden"]
    assert not torch.equal(noisy, still) and torch.allclose(noisy, still, atol=0.2)
