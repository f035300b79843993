"""The contract of every change and every way of freezing: a budget in FLOPs counts what is computed, as torch counts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from cloze.batching import Cursor
from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import build_data
from cloze.errors import CheckpointError
from cloze.networks import EncoderDecoder, Transformer
from cloze.recipe.changes import type_of
from cloze.recipe.parts import names
from cloze.training.schedule.freezing import Freezing, unfreezing_of
from cloze.training.step import StepModule

from .test_every_recipe import opened
from .test_flops import TOLERANCE, counted, without_padding, without_shortcuts

#: A recipe of each network that has layers to freeze and to change; the slow ones share their code with another.
RECIPES = ["bert", "elmo", "skip-thought", "t5-small", "xlnet-base", "zen"]
SLOW = ["albert-base", "awd-lstm", "gpt2", "transformer-xl"]
#: Those that compute much once for all rows, so that the count of two rows is off: XLNet its positions, ELMo LoRA's products.
OVER_ROWS = ["elmo", "xlnet-base"]
#: The changes that stay in a network, with their arguments.
CHANGES: dict[str, dict[str, Any]] = {
    "adapters": {"width": 6}, "pfeiffer_adapters": {"width": 6}, "lora": {"rank": 2}, "sparsify": {"share": 0.5},
    "features": {}, "mean_of_items": {}, "prompt": {"tokens": 3},
    "knowledge_adapter": {"width": 8, "heads": 2, "layers": 1, "at": (0, 1)},
    "prefix": {"tokens": 3}, "quantise": {"bits": 8}, "quantise_activations": {"bits": 8},
    "prune_heads": {"heads": ((0, 0),)}, "replace_layers": {},
}
#: Changes that need another network; tests/changes/test_fuse.py and tests/tasks/test_sentences.py measure them.
ELSEWHERE = {"fuse", "read_vector"}
#: The networks that a change is for, where it is not for all of them.
FOR: dict[str, Callable[[Any], bool]] = {
    "knowledge_adapter": lambda network: isinstance(network, Transformer),
    "mean_of_items": lambda network: "vectors" in network.takes and type(network.token_tables["tokens"]) is torch.nn.Embedding,
    "prompt": lambda network: type(network) in (Transformer, EncoderDecoder),
    "prefix": lambda network: type(network) is Transformer and not any(layer.lends for layer in network.layers),
    "prune_heads": lambda network: "attention" in network.gives and not any(
        getattr(layer, "lends", False) for layer in network.modules()
    ),
    "quantise_activations": lambda network: "attention" in network.gives,
    "replace_layers": lambda network: isinstance(network, Transformer),
}  # fmt: skip
WAYS = ["none", "embeddings", "0", "-1", *CHANGES, "lora on one map"]


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """How to build a step of a recipe, and a batch for it."""
    rows = ["training.batch=4"] if request.param in OVER_ROWS else []
    recipe, stores, tokenizer, tables = opened(request.param, tmp_path_factory.mktemp("flops"), *rows)
    given: dict[str, Any] = {"tables": tables, "store": next(iter(stores.values())), "tokenizer": tokenizer}

    def step() -> StepModule:
        return build_step(recipe, vocab_size=tokenizer.size, **given).train()

    entry = next(iter(recipe.step_entries))
    (micro, *_), _ = build_data(recipe, stores, step(), tokenizer, seed=0, tables=tables).next(entry, Cursor())
    return step, entry, without_padding(micro.batch)


def test_every_lasting_change_is_measured_here() -> None:
    assert {name for name in names("change") if type_of(name).lasts} <= CHANGES.keys() | ELSEWHERE


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("made", [*RECIPES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)], indirect=True)
def test_a_step_costs_the_products_that_it_needs(made: Any, way: str) -> None:
    build, entry, batch = made
    if way == "none" and not build().objectives.state_dict():
        return  # no head has parameters of its own: nothing would be trained
    step: StepModule = build()
    whole = step.flops(entry, batch)
    if way in FOR and not all(map(FOR[way], step.networks.values())):
        pytest.raises(CheckpointError, change, step, way)
        return
    change(step, way)
    if not all(each.makes & run.want for run in step._resolved_passes[entry] for each in _network(step, run).outside):
        return  # a recipe that reads nothing of what was changed is refused
    without_shortcuts(step)
    step.clock.set(seed=0, step=0, first_row=0, share=0.0)
    found = step.flops(entry, batch)
    assert found == pytest.approx(counted(step, entry, batch), rel=TOLERANCE)
    assert found < whole or way in ("sparsify", "lora", "quantise", "quantise_activations", "prune_heads", "replace_layers")


def change(step: StepModule, way: str) -> None:
    """Change or freeze all networks of a step."""
    if way in CHANGES or way.startswith("lora"):
        for network in step.networks.values():
            arguments = {"rank": 2, "on": (_map_of(network),)} if " " in way else CHANGES[way]
            type_of(way.partition(" ")[0])(**arguments).apply(network)
        return
    train = {name: unfreezing_of(way) for name in step.networks}
    Freezing(step, dict(step.networks.items()), train=train).enter(epochs=0.0, share=0.0)


def _network(step: StepModule, run: Any) -> Any:
    return step.networks[run.pass_.network]


def _map_of(network: Any) -> str:
    """The name of a map in the layers of a network."""
    known = {name.rpartition(".")[2] for name, module in network.named_modules() if isinstance(module, torch.nn.Linear)}
    return "outer" if "outer" in known else "recurrent"


