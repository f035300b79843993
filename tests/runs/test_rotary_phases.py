"""Bases of rotary positions that a phase sets: what the network computes, what a checkpoint says of it, and a resumed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cloze.networks.choices import Rotary
from cloze.networks.clock import Clock
from cloze.recipe.load import load_recipe
from cloze.runs.phasing import phases_of, with_positions
from tests.making import network_of
from tests.small_recipe import Write, message_of, trainer

RECIPE = """\
name: longer
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 80}}}
corpus: {passages: {}}
network: {transformer: {layers: 2, width: 16, heads: 2, attention: {band: {width: 4, dense_every: 2}}, positions: {rotary: {}}}}
exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]
objectives: [token_prediction: {transform: gelu, tie: true}]
schedule:
  - {share: 0.5, set: {length: 12}}
  - {share: 0.5, set: {length: 24, network.positions.base: 160000, network.positions.local_base: 500}}
training: {optimizer: adamw, rate: {linear: {peak: 1e-2, warmup: 0.1}}, batch: 4, keep_steps: [2]}
reading: {single: "[CLS] {A} [SEP]"}
"""


def test_a_network_turns_by_the_bases_it_is_given() -> None:
    def made(**bases: float) -> torch.nn.Module:
        torch.manual_seed(3)
        network = network_of("transformer", layers=2, width=16, heads=2, vocab_size=30, clock=Clock(0), dropout=0.0,
                             attention={"band": {"width": 4, "dense_every": 2}}, positions={"rotary": bases}).eval()  # fmt: skip
        with torch.no_grad():  # so that attention is not uniform
            for parameter in network.parameters():
                parameter.mul_(10.0 if parameter.dim() > 1 else 1.0)
        return network

    tokens = torch.arange(24).view(2, 12)
    turned, expected, usual = made(base=10000.0), made(base=50.0, local_base=7.0), made(base=10000.0)
    turned.rotate_by(Rotary(base=50.0, local_base=7.0))
    want = frozenset({"hidden"})
    found = [network(tokens=tokens, want=want)["hidden"] for network in (turned, expected, usual)]
    assert torch.equal(found[0], found[1]) and not torch.allclose(found[0], found[2], atol=1e-3)


@pytest.mark.parametrize("path", ["network.positions.base", "networks.main.positions.rotary.base"])
def test_a_phase_keeps_the_other_values_of_the_positions(write: Write, path: str) -> None:
    network = ("heads: 2}}", "heads: 2, positions: {rotary: {local_base: 300, max_length: 64}}}}")
    phases = ("training:\n", f"schedule: [{{share: 0.5}}, {{share: 0.5, set: {{{path}: 160000}}}}]\ntraining:\n")
    recipe = load_recipe(write(network, phases, ("length: 128", "length: 32")))
    found = [phase.positions["main"] for phase in with_positions(phases_of(recipe), recipe)]
    assert found == [Rotary(base=base, local_base=300.0, max_length=64) for base in (10000.0, 160000.0)]


def test_a_base_of_positions_that_do_not_turn_is_refused(write: Write) -> None:
    phases = ("training:\n", "schedule: [{share: 1.0, set: {network.positions.base: 160000}}]\ntraining:\n")
    assert 'unknown argument "base"' in message_of(lambda: load_recipe(write(phases)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, little_text: Path) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    trainer(folder, little_text, budget="6steps")(folder / "run", RECIPE)
    return folder / "run"


def test_a_checkpoint_says_by_which_base_its_phase_turns(whole: Path) -> None:
    def bases(folder: Path) -> tuple[float, float | None]:
        given = json.loads((folder / "cloze" / "network.json").read_text(encoding="utf-8"))
        positions = json.dumps(given)
        (rotary,) = [json.loads(positions[start:].partition("}")[0] + "}") for start in [positions.index('{"base"')]]
        return rotary["base"], rotary["local_base"]

    assert bases(whole) == (160000.0, 500.0)
    assert bases(whole / "cloze" / "checkpoints" / "step-00000002") == (10000.0, 10000.0)
    assert load_recipe(whole).networks["main"].part.arguments["positions"].arguments["base"] == 10000.0  # type: ignore[union-attr]


@pytest.mark.parametrize("until", [0.34, 0.67])
def test_a_run_that_pauses_in_any_phase_is_the_whole_run(whole: Path, tmp_path: Path, little_text: Path, until: float) -> None:
    train = trainer(tmp_path, little_text, budget="6steps")
    train(tmp_path / "run", RECIPE, until=until)
    train(tmp_path / "run", RECIPE)
    found, expected = (load_file(folder / "cloze" / "network.safetensors") for folder in (tmp_path / "run", whole))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
