"""The small systems of tests/interop, transformers where it is installed, and one text that both packages read."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from cloze.checkpoint.bound import BoundCheckpoints
from cloze.checkpoint.build import build_step, load_checkpoint
from cloze.checkpoint.publish import Publisher
from cloze.checkpoint.warm_start import load_origins
from cloze.networks.blocks.computed import is_added
from cloze.networks.network import TokenSequence
from cloze.recipe.load import load_recipe

TOKENS = torch.arange(5, 17)[None]


def load(name: str, path: Path) -> ModuleType:
    """The module of a file next to the tests, imported once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def systems() -> ModuleType:
    """Builders of small random BERT, RoBERTa, GPT-2 and ELECTRA models."""
    return load("cloze_interop_systems", Path(__file__).parent.parent / "interop" / "systems.py")


@pytest.fixture(scope="session")
def foreign() -> ModuleType:
    """Small models as transformers makes and saves them, of every architecture that it still has."""
    pytest.importorskip("transformers")
    return load("cloze_parity_foreign", Path(__file__).with_name("foreign.py"))


def publish_start(folder: Path, name: str, pieces: Any) -> Path:
    """A folder with a tiny network of a recipe, as it is drawn."""
    recipe = load_recipe(name, size="tiny")
    Publisher(recipe, pieces)(folder, build_step(recipe, vocab_size=pieces.size).state_dict(), 0)
    return folder


def publish_changed(
    folder: Path, start: Path, name: str, pieces: Any, change: dict[str, Any], *, noise: float = 0.0
) -> Path:
    """The folder of a run that changes the network in `start`; `noise` on what the change adds stands for its training."""
    networks = {"main": {"from": "start", "change": [change]}}
    written = {**load_recipe(name, size="tiny").canonical(), "networks": networks}
    recipe = load_recipe(written, checkpoints=BoundCheckpoints({"start": start}))
    step = build_step(recipe, vocab_size=pieces.size, to_be_loaded=frozenset({"main"}))
    load_origins(step, recipe, {"main": start}, pieces, resumes=False, say=lambda line: None)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter_name, parameter in step.named_parameters():
            if is_added(parameter_name):
                parameter.add_(noise * torch.randn_like(parameter))
    Publisher(recipe, pieces)(folder, step.state_dict(), 1)
    return folder


def read_by_cloze(folder: Path) -> torch.Tensor:
    """The states that the network of a folder gives for `TOKENS`: those of the decoder, if it has one."""
    loaded = load_checkpoint(folder)
    network = loaded.network
    further = {} if network.writes is None else {"decoder": TokenSequence(TOKENS[:, :4])}
    state = network.writes or "hidden"
    with torch.no_grad():
        found: torch.Tensor = network(want=frozenset({state}), order=loaded.order, tokens=TOKENS, **further)[state]
    return found


def read_by_transformers(model: Any) -> torch.Tensor:
    """The same states from a model of transformers or peft; with a prompt, those of the prompt come first."""
    further = {"decoder_input_ids": TOKENS[:, :4]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        output = model.eval()(input_ids=TOKENS, output_hidden_states=True, **further)
    states = output.get("decoder_hidden_states", None)
    found: torch.Tensor = (output.hidden_states if states is None else states)[-1]
    return found
