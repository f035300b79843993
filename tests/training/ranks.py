"""Two ranks, as torchrun starts them: `python ranks.py FOLDER` trains each scenario into its own folder.

The ranks are forks of this process, which has imported everything: torchrun would start two that import it again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lanes import Lanes, recurrent
from tiny import Numbers, bert, electra, tiny_run

from cloze.changes import QuantiseActivations
from cloze.training.checkpoints.state import Gathering, gather_parameters
from cloze.training.distribution import Ranks
from cloze.training.loop import train
from cloze.training.optimizers import muon
from cloze.training.optimizers.muon import Muon
from cloze.training.optimizers.optimizers import AdamW, OptimizerSpec
from cloze.training.step import StepModule


def rounded() -> StepModule:
    """A network that learns the ranges of its activations."""
    step = bert()
    QuantiseActivations(bits=16, average=0.5).apply(step.networks["main"])
    return step


SCENARIOS: dict[str, tuple[Callable[[], StepModule], dict[str, Any]]] = {
    "ddp-bert": (bert, {"strategy": "ddp"}),
    "ddp-electra": (electra, {"strategy": "ddp"}),
    "ddp-rounded": (rounded, {"strategy": "ddp"}),
    "fsdp-bert": (bert, {"strategy": "fsdp"}),
    "fsdp-electra": (electra, {"strategy": "fsdp"}),
    "copies-electra": (electra, {"strategy": "fsdp", "shard": 1}),
    "fsdp-mean": (electra, {"strategy": "fsdp", "average": 0.6}),
    "fsdp-muon": (bert, {"strategy": "fsdp", "optimizer": Muon()}),
}


def in_float32(precision: str, device: torch.device) -> torch.dtype:
    """The type of Muon's iteration here: bfloat16, which some processors have, would round more than ranks differ."""
    return torch.float32


def settings(*, optimizer: OptimizerSpec | None = None, **changes: Any) -> dict[str, Any]:
    return {"budget": "6steps", "optimizer": optimizer or AdamW(), "training": {"log_every": 1, "checkpoint_every": 3, **changes}}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    muon.as_dtype = in_float32
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name, (build, how) in SCENARIOS.items():
        data = Numbers(micro=2, rank=rank, ranks=ranks)
        train(tiny_run(folder / name, step=build(), data=data, **settings(**how)))
    data = Numbers(micro=2, rank=rank, ranks=ranks)
    half = settings(strategy="fsdp", shard=ranks, precision="bf16")
    train(tiny_run(folder / "half-electra", step=electra(), data=data, **half))
    from test_loop import mixture

    for strategy in ("ddp", "fsdp"):
        data = Numbers(rank=rank, ranks=ranks)
        train(
            tiny_run(
                folder / f"{strategy}-mixture", step=mixture(), mixing="all", data=data, **settings(strategy=strategy)
            )
        )
    for strategy in ("ddp", "fsdp"):
        data = Lanes(micro=2, rank=rank, ranks=ranks)
        train(tiny_run(folder / f"{strategy}-lanes", step=recurrent(), data=data, **settings(strategy=strategy)))
    resume(folder, rank, ranks)
    copy_while_training(folder, rank, ranks)


def copy_while_training(folder: Path, rank: int, ranks: int) -> None:
    """A copy of the parameters, of which every rank has all, is compared after they have changed."""
    step = electra()
    Ranks(rank, ranks, torch.device("cpu"), "fsdp", 1).wrap(step)
    copied = gather_parameters(step, Gathering(copied=True))
    before = {name: tensor.clone() for name, tensor in copied.items()}
    with torch.no_grad():
        for parameter in step.parameters():
            parameter.add_(1.0)
    unchanged = all(torch.equal(copied[name], tensor) for name, tensor in before.items())
    (folder / f"copied.{rank}").write_text("unchanged" if unchanged else "changed with the parameters")


def resume(folder: Path, rank: int, ranks: int) -> None:
    """A run that one process began continues here, sharded."""
    run = tiny_run(
        folder / "begun-alone", step=electra(), data=Numbers(rank=rank, ranks=ranks), **settings(strategy="fsdp")
    )
    run.extend = True
    train(run)
    run = tiny_run(folder / "lanes-begun-alone", step=recurrent(), data=Lanes(rank=rank, ranks=ranks), **settings())
    run.extend = True
    train(run)


if __name__ == "__main__":
    import torch._dynamo
    import torch.distributed.fsdp
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # what torchrun calls

    torch.set_num_threads(1)  # a fork must not inherit a pool of threads
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork",
        max_restarts=0, monitor_interval=0.05,
    )
    elastic_launch(config, main)(Path(sys.argv[1]))
