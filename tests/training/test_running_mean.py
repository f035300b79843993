"""The exponential mean of the weights: what it is, and that a run is measured and exported with it, resumed or not."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from test_loop import Breaking, Broken, events, timeless
from tiny import bert, tiny_run, weights
from torch import nn

from cloze.training.loop import train
from cloze.training.optimizers.averaged import averages, averaging_weights
from cloze.training.optimizers.optimizers import AdamW, Lamb
from cloze.training.optimizers.stable_adamw import StableAdamW


@pytest.mark.parametrize("spec", [AdamW(), Lamb(bias_correction=True), StableAdamW()])
def test_the_mean_follows_each_weight_from_before_its_first_update(spec):
    torch.manual_seed(1)
    early, late = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(2))
    optimizer = spec.build([("early", early), ("late", late)])
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    expected = {parameter: parameter.detach().clone() for parameter in (early, late)}
    for step in range(6):
        early.grad, late.grad = torch.randn(3, 2), torch.randn(2) if step >= 3 else None
        with averaging_weights(optimizer, 0.7):
            optimizer.step()
        expected = {parameter: 0.7 * mean + 0.3 * parameter.detach() for parameter, mean in expected.items()}
        assert ("average" in optimizer.state.get(late, {})) == (step >= 3)
    own = early.detach().clone()
    with averages(optimizer):
        torch.testing.assert_close(early.detach(), expected[early])
        torch.testing.assert_close(late.detach(), expected[late])
    assert torch.equal(early, own) and not torch.equal(own, expected[early])


def test_a_run_exports_the_mean_of_all_its_steps_and_measures_it(tmp_path):
    options = {"average": 0.8, "checkpoint_every": 1, "keep": 20, "evaluate_every": 0.5}
    train(tiny_run(tmp_path / "mean", training=options))
    states = [
        load_file(tmp_path / f"mean/cloze/checkpoints/step-{step:08d}/state/parameters.safetensors") for step in range(13)
    ]
    shown = load_file(tmp_path / "mean" / "model.safetensors")
    for name in states[0]:
        mean = states[0][name].double()
        for state in states[1:]:
            mean = 0.8 * mean + 0.2 * state[name].double()
        torch.testing.assert_close(shown[name].double(), mean, atol=1e-6, rtol=1e-5)
    train(tiny_run(tmp_path / "plain", training={**options, "average": None}))
    last = "cloze/checkpoints/step-00000012/state/parameters.safetensors"
    plain, own = load_file(tmp_path / "plain" / last), load_file(tmp_path / "mean" / last)
    assert all(torch.equal(plain[name], own[name]) for name in plain)  # training goes on from the weights, not from their mean
    losses = [events(tmp_path / name, "held_out")[-1]["loss"] for name in ("mean", "plain")]
    assert abs(losses[0] - losses[1]) > 1e-3


def test_a_run_with_a_mean_resumes_bit_for_bit(tmp_path):
    options = {"average": 0.9}
    train(tiny_run(tmp_path / "whole", training=options))
    with pytest.raises(Broken):
        train(tiny_run(tmp_path / "parts", training=options, data=Breaking(at=7)))
    train(tiny_run(tmp_path / "parts", training=options))
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    assert timeless(events(tmp_path / "parts", "held_out")) == timeless(events(tmp_path / "whole", "held_out"))


def jumping(share, steps=None):
    """A rate that ruins the second half of a run."""
    return 1e-2 if share < 0.6 else 0.5


KEEPING = {"evaluate_every": 0.25, "checkpoint_every": None}


def best(metric="token_prediction"):
    from cloze.training.selection import Selection

    return Selection(None, metric, higher_is_better=False)


def test_a_run_gives_the_checkpoint_with_the_lowest_held_out_loss_and_resumes_bit_for_bit(tmp_path):
    said = []
    run = tiny_run(tmp_path / "whole", training=KEEPING, rate=jumping, selection=best())
    run.say = said.append
    outcome = train(run)
    losses = {event["step"]: event["objectives"]["token_prediction"] for event in events(tmp_path / "whole", "held_out")}
    lowest = min(losses, key=losses.get)
    assert lowest < 12 and losses[lowest] < losses[12] - 0.1
    assert (outcome.standing.step, outcome.step) == (lowest, 12)
    shown = load_file(tmp_path / "whole" / "model.safetensors")
    state = load_file(tmp_path / f"whole/cloze/checkpoints/step-{lowest:08d}/state/parameters.safetensors")
    assert all(torch.equal(shown[name], state[name]) for name in state)
    assert f"the folder holds the checkpoint of step {lowest}, with the lowest held-out loss" in said[-1]
    for at in (5, 11):  # before and after the best
        folder = tmp_path / f"parts-{at}"
        with pytest.raises(Broken):
            train(tiny_run(folder, training=KEEPING, rate=jumping, selection=best(), data=Breaking(at=at)))
        train(tiny_run(folder, training=KEEPING, rate=jumping, selection=best()))
        assert weights(folder) == weights(tmp_path / "whole")


def test_the_best_is_kept_though_checkpoints_fall_elsewhere(tmp_path):
    options = {"evaluate_every": 0.25, "checkpoint_every": 5, "keep": 1}
    train(tiny_run(tmp_path, step=bert(), training=options, rate=jumping, selection=best("relation_prediction")))
    losses = {event["step"]: event["objectives"]["relation_prediction"] for event in events(tmp_path, "held_out")}
    lowest = min(losses, key=losses.get)
    assert (tmp_path / "README.md").read_text() == f"step {lowest}\n"
