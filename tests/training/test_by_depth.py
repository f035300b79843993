"""Optimizers by depth: embeddings, layers and heads move as under optimizers of their own, also after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from cloze.changes.layerwise import Parts
from cloze.checkpoint.build import load_checkpoint
from cloze.errors import RecipeError
from cloze.recipe.load import load_recipe
from cloze.runs.run import pretrain
from cloze.training.interrupt import Interrupt
from cloze.training.optimizers.averaged import AveragedSGD
from cloze.training.optimizers.by_depth import ByDepth
from cloze.training.optimizers.muon import Muon
from cloze.training.optimizers.optimizers import AdamW, BertAdam, GptAdam
from cloze.training.optimizers.static_optimizers import Adam, Sgd
from cloze.training.schedule.freezing import Freezing, set_rate
from tests.small_recipe import Write

SMALL = (("size: 8000", "size: 60"), ("length: 128", "length: 16"), ("width: 64", "width: 16"), ("batch: 32", "batch: 4"))


class Network(nn.Module):
    """A table, two layers, and a final norm, which belongs to the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(5, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.norm = nn.LayerNorm(4)

    def depth_groups(self) -> list[nn.Module]:
        """The table and the layers."""
        return [self.embeddings, *self.layers]


def model() -> nn.ModuleDict:
    """A network and a head with the same weights in every call."""
    torch.manual_seed(0)
    return nn.ModuleDict({"network": Network(), "head": nn.Linear(4, 3)})


def parts(module: nn.ModuleDict) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """The parameters of the table, of the layers with their norm, and of the head."""
    network: Any = module["network"]
    layers = [*network.layers.parameters(), *network.norm.parameters()]
    return list(network.embeddings.parameters()), layers, list(module["head"].parameters())


def gradients(module: nn.Module, step: int) -> None:
    """Give every parameter a gradient that follows from the step."""
    for number, parameter in enumerate(module.parameters()):
        generator = torch.Generator().manual_seed(100 * step + number)
        parameter.grad = torch.randn(parameter.shape, generator=generator) * (number + 1)


def train(module: nn.ModuleDict, spec: ByDepth, steps: int, **rates: float) -> torch.optim.Optimizer:
    freezing = Freezing(module, {"main": module["network"]}, layerwise=Parts(**rates))
    optimizer = spec.build_by_part(module.named_parameters(), freezing.part_of)
    freezing.prepare(optimizer)
    for step in range(steps):
        gradients(module, step)
        set_rate(optimizer, 5e-4)
        optimizer.step()
    return optimizer


def test_siatls_optimizers_move_weights_as_those_of_the_authors_code() -> None:
    """models/sent_clf.py and sent_clf_trainer.py: ASGD at 1e-4 and 1e-2, Adam at 5e-4, each with its gradients cut at 5."""
    ours, theirs = model(), model()
    spec = load_recipe("siatl_classification").training
    assert spec.clip is None and spec.layerwise_rates is not None
    arguments = spec.layerwise_rates.arguments
    by_depth = ByDepth(layers=Sgd(weight_decay=1e-4, decay="all"), heads=Adam(), clip=5.0)
    assert {name: getattr(part, "name", part) for name, part in spec.optimizer.arguments.items()} == {
        "layers": "sgd", "heads": "adam", "embeddings": None, "clip": 5.0
    }  # fmt: skip
    train(ours, by_depth, 20, **arguments)
    table, layers, head = parts(theirs)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.ASGD(table, lr=1e-4), torch.optim.ASGD(layers), torch.optim.Adam(head, lr=5e-4)
    ]  # fmt: skip
    for step in range(20):
        gradients(theirs, step)
        for optimizer in optimizers:
            clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 5.0)
            optimizer.step()
    for (name, mine), other, start in zip(ours.named_parameters(), theirs.parameters(), model().parameters(), strict=True):
        assert not torch.equal(mine, start), name
        # ASGD's rate falls by 0.75 · 1e-4 · 1e-2 · step, so it moves the layers less by up to 2e-5 of all that they move
        assert torch.allclose(mine, other, rtol=0, atol=2e-5 * float((other - start).detach().abs().max()) + 1e-6), name


def test_parts_with_optimizers_of_any_kind_move_as_alone() -> None:
    """Each has the state of its own parameters: GPT's Adam counts its steps, BERT's begins with moments, Muon groups matrices."""
    specs: dict[str, Any] = {
        "embeddings": BertAdam(tensor_clip=0.5), "layers": GptAdam(weight_decay=0.1), "heads": Muon()
    }  # fmt: skip
    together = model()
    joined = train(together, ByDepth(**specs), 4)
    assert {key for state in joined.state.values() for key in state} >= {"exp_avg", "exp_avg_sq", "step"}
    for index, name in enumerate(specs):
        alone = model()
        members = {id(parameter) for parameter in parts(alone)[index]}
        optimizer = specs[name].build([(label, p) for label, p in alone.named_parameters() if id(p) in members])
        for step in range(4):
            gradients(alone, step)
            set_rate(optimizer, 5e-4)
            optimizer.step()
        for mine, other in zip(parts(together)[index], parts(alone)[index], strict=True):
            assert torch.equal(mine, other), name


def test_embeddings_have_the_optimizer_of_the_layers_unless_they_have_their_own() -> None:
    table_moves = []
    for embeddings in (None, Sgd(), AdamW()):
        module = model()
        train(module, ByDepth(layers=Sgd(), heads=Adam(), embeddings=embeddings), 2)
        table_moves.append(parts(module)[0][0].detach().clone())
    assert torch.equal(table_moves[0], table_moves[1]) and not torch.equal(table_moves[0], table_moves[2])


def test_an_optimizer_that_averages_weights_is_refused_for_a_part() -> None:
    with pytest.raises(RecipeError, match=r"by_depth\.heads: this optimizer averages the weights .*\n  Take another one"):
        ByDepth(layers=Sgd(), heads=AveragedSGD())


BY_DEPTH = "optimizer: {by_depth: {embeddings: adamw, layers: gpt_adam, heads: {sgd: {momentum: 0.9}}, clip: 1.0}}"


def test_a_run_with_an_optimizer_by_depth_resumes_bit_for_bit(
    write: Write, little_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write(*SMALL, ("optimizer: adamw", BY_DEPTH))
    options: dict[str, Any] = {"corpus": little_text, "budget": "4steps", "report": lambda line: None}
    assert pretrain(recipe, out=tmp_path / "whole", **options).finished
    stops = iter([False] * 2 + [True] * 9)
    with monkeypatch.context() as patched:
        patched.setattr(Interrupt, "__bool__", lambda self: next(stops))
        assert not pretrain(recipe, out=tmp_path / "broken", **options).finished
    assert pretrain(recipe, out=tmp_path / "broken", **options).finished
    whole, broken = (load_checkpoint(tmp_path / name).network.state_dict() for name in ("whole", "broken"))
    assert all(torch.equal(tensor, broken[name]) for name, tensor in whole.items())


def test_rates_by_part_fit_any_number_of_layers() -> None:
    rates = Parts(embeddings=0.2, layers=20)
    assert rates.factors(3) == (0.2, 20, 20, 1.0) and rates.factors(2) == (0.2, 20, 1.0)
