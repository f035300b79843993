"""The contract of every recipe: a budget in FLOPs counts the products of networks and heads as torch counts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from cloze.batch import Batch
from cloze.batching import Cursor
from cloze.checkpoint.build import build_step
from cloze.checkpoint.feeds import build_data
from cloze.networks import Transformer
from cloze.objectives import CooccurrenceRegression, Factorisation
from cloze.training.carry import Carries
from cloze.training.step import StepModule

from .test_every_recipe import distinct, opened

TOLERANCE = 0.02
CLOSE = 0.01  # without a memory, whose positions are computed once for all rows


class Products(TorchDispatchMode):
    """Adds up what torch's own registry says each product costs. Its `FlopCounterMode` also keeps a tree of modules, which takes
    most of the time."""

    flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        value = function(*arguments, **named)
        packet = function._overloadpacket
        packet = torch.ops.aten.addmm if packet is torch.ops.aten.addmm_ else packet  # of which the registry knows nothing
        if packet in flop_registry:
            self.flops += flop_registry[packet](*arguments, **named, out_val=value)
        return value


def counted(step: StepModule, entry: str, batch: Batch) -> int:
    """What torch counts of a forward and backward pass; a memory is full when it begins."""
    carries = Carries()
    carry = carries.of(entry, 0, len(batch["tokens"]), torch.device("cpu")) if step.carries else None
    memory = max(getattr(network, "memory", 0) for network in step.networks.values())
    for _ in range(-(-memory // batch["tokens"].shape[1]) if carry is not None else 0):
        step(entry, batch, carry)
    with torch.backends.mkldnn.flags(enabled=False), Products() as counter:
        losses = step(entry, batch, carry)
        torch.stack([loss.total for loss in losses.values()]).sum().backward()
    return int(counter.flops)


def without_shortcuts(step: StepModule) -> None:
    """Have a CPU compute the last layer everywhere, as other devices do."""
    for entry, passes in step._resolved_passes.items():
        plain = [isinstance(step.networks[one.pass_.network], Transformer) for one in passes]
        step._resolved_passes[entry] = tuple(
            one._replace(only_positions=one.only_positions and not own) for one, own in zip(passes, plain, strict=True)
        )


def without_padding(batch: Batch) -> Batch:
    """Padding as text, and padded items as items: what is computed for it on a device is not counted."""
    def shown(name: str, tensor: torch.Tensor) -> torch.Tensor:
        vectors = batch.get(name.replace("item_length/", "item_vectors/"))
        if name.startswith("item_length/") and vectors is not None:
            return torch.full_like(tensor, vectors.shape[1])
        return tensor.clamp(min=1) if name.rpartition(".")[2] == "block" else tensor

    return Batch({name: shown(name, tensor) for name, tensor in batch.items()})


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("name", distinct())
def test_a_step_costs_what_its_products_cost(name: str, tmp_path: Path) -> None:
    recipe, stores, tokenizer, tables = opened(name, tmp_path)
    store = next(iter(stores.values()))
    step = build_step(recipe, vocab_size=tokenizer.size, tables=tables, store=store, tokenizer=tokenizer).train()
    data = build_data(recipe, stores, step, tokenizer, seed=0, tables=tables)
    without_shortcuts(step)
    if any(isinstance(objective, Factorisation) for objective in step.objectives.values()):
        return  # nothing of it is a step; the engine counts what it multiplies
    for entry in recipe.step_entries:
        (micro, *_), _ = data.next(entry, Cursor())
        batch = without_padding(micro.batch)
        step.clock.set(seed=0, step=0, first_row=0, share=0.0)
        if any(isinstance(objective, CooccurrenceRegression) for objective in step.objectives.values()):
            (network,) = step.networks.values()  # number by number, which torch does not count as a product
            assert step.flops(entry, batch) == 6 * network.width * len(batch["cell"])
            continue
        remembers = any(getattr(network, "memory", 0) for network in step.networks.values())
        expected = pytest.approx(counted(step, entry, batch), rel=TOLERANCE if remembers else CLOSE)
        assert step.flops(entry, batch) == expected


def test_what_runs_without_gradient_costs_a_third(tmp_path: Path) -> None:
    recipe, stores, tokenizer, tables = opened("bert", tmp_path)
    step = build_step(recipe, vocab_size=tokenizer.size)
    batch = build_data(recipe, stores, step, tokenizer, seed=0).next("main", Cursor())[0][0].batch
    whole = step.flops("main", batch)
    passes = step._resolved_passes["main"]
    step._resolved_passes = {"main": tuple(one._replace(pass_=replace(one.pass_, grad=False)) for one in passes)}
    assert step.flops("main", batch) == pytest.approx(whole / 3)
