"""Averaged SGD: when it begins, what the mean is, and that a run is measured and exported with it but goes on without."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import torch
from torch import nn

from cloze.errors import RecipeError
from cloze.training.checkpoints.state import gather_optimizer, load_optimizer
from cloze.training.optimizers.averaged import AveragedSGD, AveragingOptimizer, TriggeredSGD, averaged, averages, observe_loss


def descend(optimizer: torch.optim.Optimizer, module: nn.Linear, steps: int) -> list[torch.Tensor]:
    """Steps down a bowl; the weights after each."""
    seen = []
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for _ in range(steps):
        optimizer.zero_grad()
        (module.weight - 3).square().sum().backward()
        optimizer.step()
        seen.append(module.weight.detach().clone())
    return seen


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(2, 2, bias=False)


def triggered(module: nn.Linear, patience: int = 2) -> AveragingOptimizer:
    made = TriggeredSGD(patience=patience).build(module.named_parameters())
    assert isinstance(made, AveragingOptimizer)
    return made


def test_it_is_sgd_with_decay_added_to_the_gradient() -> None:
    module, other = linear(), linear()
    optimizer = AveragedSGD(weight_decay=0.01, after=100).build(module.named_parameters())
    torchs = torch.optim.SGD(other.parameters(), lr=0.1, weight_decay=0.01)
    torch.testing.assert_close(descend(optimizer, module, 5), descend(torchs, other, 5))


@pytest.mark.parametrize("after", [0, 3])
def test_the_mean_is_that_of_the_weights_after_the_trigger(after: int) -> None:
    module = linear()
    optimizer = AveragedSGD(after=after).build(module.named_parameters())
    seen = descend(optimizer, module, 8)
    own = module.weight.detach().clone()
    with averages(optimizer):
        torch.testing.assert_close(module.weight.detach(), torch.stack(seen[after:]).mean(0))
    assert torch.equal(module.weight, own)


@pytest.mark.parametrize("losses", [[5, 4, 3, 2, 1, 0.5], [5, 4, 4.5, 4.4, 3.9], [5, 4, 4.5, 4.4, 4.0], [5, 4, 3]])
def test_it_waits_while_losses_fall(losses: list[float]) -> None:
    module = linear()
    optimizer = triggered(module)
    for loss in losses:
        observe_loss(optimizer, loss)
    descend(optimizer, module, 1)
    assert "average" not in optimizer.state[module.weight]


def test_it_begins_when_a_loss_is_above_the_lowest_of_all_but_the_last() -> None:
    module, records = linear(), [5.0, 4.0, 4.5, 4.3, 4.1]  # 4.1 > min(5, 4): all but the last two before it
    optimizer = triggered(module)
    for loss in records[:-1]:
        observe_loss(optimizer, loss)
    descend(optimizer, module, 1)
    assert "average" not in optimizer.state[module.weight]
    observe_loss(optimizer, records[-1])
    seen = descend(optimizer, module, 3)
    with averages(optimizer):
        torch.testing.assert_close(module.weight.detach(), torch.stack(seen).mean(0))


@pytest.mark.parametrize("known", [3, 6])
def test_a_resumed_optimizer_goes_on_as_if_nothing_had_happened(known: int) -> None:
    losses = [5.0, 4.0, 4.5, 4.3, 4.1, 4.0, 3.9, 3.8]
    module, other = linear(), linear()
    straight, stopped = triggered(module), triggered(other)
    for number, loss in enumerate(losses):
        observe_loss(straight, loss)
        descend(straight, module, 1)
        if number == known:
            state = gather_optimizer(stopped, other)
            stopped = triggered(other)
            load_optimizer(stopped, other, {name: value.clone() for name, value in state.items()}, where="here")
        observe_loss(stopped, loss)
        descend(stopped, other, 1)
    gather = {"straight": lambda: {"w": module.weight.detach()}, "stopped": lambda: {"w": other.weight.detach()}}
    first, second = averaged(straight, gather["straight"]), averaged(stopped, gather["stopped"])
    assert first is not None and second is not None and torch.equal(first["w"], second["w"])
    assert not torch.equal(first["w"], module.weight)


def test_without_patience_it_is_refused() -> None:
    with pytest.raises(RecipeError, match="patience"):
        TriggeredSGD(patience=0)


def test_a_run_exports_the_mean_and_keeps_its_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import load_file

    from cloze.cli.main import main

    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"one sentence of {n} words and {n % 7} more ." for n in range(200)))
    out, recipe = tmp_path / "run", tmp_path / "mean.yaml"
    published = (resources.files("cloze") / "recipes" / "lstm.yaml").read_text(encoding="utf-8")
    recipe.write_text(published.replace("sgd: {}", "asgd: {after: 0}"))
    arguments = [
        "pretrain", str(recipe), "--size", "tiny", "--budget", "6steps", "--out", str(out), "--corpus", str(text),
        "--set", "length=12", "--set", "training.batch=2",
    ]
    assert main(arguments) == 0, capsys.readouterr().err
    shown = load_file(out / "cloze" / "network.safetensors")
    last = out / "cloze" / "checkpoints" / "step-00000006" / "state"
    name = "networks.main.embeddings.tokens.weight"
    mean = load_file(last / "optimizer.safetensors")[f"{name}:average"]
    torch.testing.assert_close(shown["embeddings.tokens.weight"], mean)
    assert not torch.equal(mean, load_file(last / "parameters.safetensors")[name])


def test_the_recipe_writes_the_codes_numbers_for_the_sum_over_a_row_of_70() -> None:
    """There a row's loss is a mean at rate 30 * length / 70, clipped at 0.25, with a decay of 1.2e-6."""
    from cloze.recipe.load import load_recipe

    training = load_recipe("awd-lstm").training
    rate, decay = training.rate.arguments["peak"], training.optimizer.arguments["weight_decay"]
    assert training.divide == "rows" and training.clip == 70 * 0.25
    assert rate == pytest.approx(30 / 70, rel=1e-5) and rate * decay == pytest.approx(30 * 1.2e-6, rel=1e-5)
