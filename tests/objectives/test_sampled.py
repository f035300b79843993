"""A softmax over a sample, and answers among the most frequent ids alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from cloze import rng
from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import sampled_prediction
from cloze.objectives.tokens.sampled import SampledPrediction, draw_log_uniform, log_expected, log_uniform

SIZE, WIDTH = 30, 5


def objective(**changed: Any) -> SampledPrediction:
    torch.manual_seed(0)
    made = sampled_prediction(**{"width": WIDTH, "vocab_size": SIZE, "clock": Clock(7), **changed})
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made.double()


def asked(*targets: int) -> tuple[dict[str, torch.Tensor], Batch]:
    states = torch.randn(1, 8, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    positions = torch.arange(len(targets))
    return {"hidden": states}, Batch({
        "tokens": torch.zeros(1, 8, dtype=torch.long), "positions/main": positions,
        "targets/main": torch.tensor(targets, dtype=torch.long),
    })


def test_the_log_uniform_distribution_sums_to_one_and_follows_zipf() -> None:
    shares = log_uniform(np.arange(1000), 1000)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] == pytest.approx(math.log(2) / math.log(1001))
    assert shares[9] / shares[99] == pytest.approx(math.log(11 / 10) / math.log(101 / 100))


def test_ids_are_drawn_once_each_and_as_often_as_expected() -> None:
    found = np.zeros(50)
    expected = np.zeros(50)
    for key in range(2000):
        drawn, draws = draw_log_uniform(8, 50, key)
        assert len(set(drawn.tolist())) == 8 <= draws and drawn.max() < 50
        found[drawn] += 1
        expected += np.exp(log_expected(np.arange(50), 50, draws))
    assert found[0] > found[5] > found[40]
    # Drawing until there are enough makes the formula of TensorFlow an estimate: as good as this.
    np.testing.assert_allclose(found / 2000, expected / 2000, atol=0.04)
    assert draw_log_uniform(8, 50, 3)[0].tolist() == draw_log_uniform(8, 50, 3)[0].tolist()


def test_the_loss_is_the_one_written_out() -> None:
    made = objective(samples=6)
    made.clock.set(seed=7, step=4, first_row=0)
    states, batch = asked(3, 0, 29)
    drawn, draws = draw_log_uniform(6, SIZE, rng.fold(7, 4, "sampled", "main"))
    correction = log_expected(np.arange(SIZE), SIZE, draws)
    scores = (states["hidden"][0] @ made.head.weight.T + made.head.bias).detach().numpy()
    expected = 0.0
    for row, target in enumerate((3, 0, 29)):
        among = [target, *(k for k in drawn.tolist() if k != target)]
        values = np.array([scores[row, k] - correction[k] for k in among])
        expected += np.log(np.exp(values).sum()) - values[0]
    loss = made(states, batch)
    assert loss.total.item() == pytest.approx(expected, rel=1e-6)
    loss.total.backward()
    untouched = sorted(set(range(SIZE)) - set(drawn.tolist()) - {3, 0, 29})
    assert untouched and made.head.weight.grad is not None
    assert made.head.weight.grad[untouched].eq(0).all() and made.head.weight.grad[3].ne(0).any()
    made.clock.set(step=5)
    assert made(states, batch).total.item() != loss.total.item()  # another sample


def test_held_out_losses_are_those_of_the_whole_softmax_and_so_is_a_sample_of_everything() -> None:
    states, batch = asked(3, 0, 29)
    made = objective(samples=6).eval()
    scores = made.scores(states, batch)
    whole = torch.nn.functional.cross_entropy(scores, batch["targets/main"], reduction="sum")
    assert made(states, batch).total.item() == pytest.approx(whole.item())
    assert made.loss(scores, batch).total.item() == pytest.approx(whole.item())
    everything = objective(samples=SIZE)
    assert everything.samples is None and everything.train()(states, batch).total.item() == pytest.approx(whole.item())


def test_only_the_most_frequent_ids_are_targets() -> None:
    states, batch = asked(3, 12, 29)
    made = objective(frequent=10, spellings=["[PAD]", "a", "[UNK]"])
    assert made.head.weight.shape == (10, WIDTH) and made.unknown == 2
    assert made.target_ids(batch).tolist() == [3, 2, 2]
    scores = made.scores(states, batch)
    assert scores.shape == (3, SIZE) and scores[:, 10:].eq(-torch.inf).all()
    expected = torch.nn.functional.cross_entropy(scores[:, :10], torch.tensor([3, 2, 2]), reduction="sum")
    for found in (made(states, batch), made.loss(scores, batch)):
        assert found.total.item() == pytest.approx(expected.item())


def test_no_answers_give_a_zero_that_is_connected() -> None:
    made = objective(samples=6)
    states, batch = asked()
    loss = made(states, batch).total
    loss.backward()
    assert loss.item() == 0.0 and made.head.weight.grad is not None


def test_what_does_not_go_together_is_refused() -> None:
    for settings, said in (
        ({}, "give samples or frequent"), ({"frequent": 1}, "at least 2"), ({"samples": 4, "tie": True}, "no token table"),
        ({"frequent": 5, "tie": True, "table": torch.nn.Embedding(SIZE, WIDTH)}, "and tie: false"),
    ):
        with pytest.raises(RecipeError, match=said):
            objective(**settings)
