"""Ranks: torchrun, DDP or FSDP2 around the single `Step`, and what all ranks must agree on."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import nn

from cloze.training.precision import choose_device
from cloze.training.step import Step

Strategy = Literal["ddp", "fsdp"]


@dataclass(frozen=True)
class Ranks:
    """This process among the processes of the run. One process alone is rank 0 of 1 and never communicates."""

    rank: int
    world: int
    device: torch.device
    strategy: Strategy = "ddp"

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and speaks to the user."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """Whether every forward pass is a collective, so that all ranks must run the same number."""
        return self.world > 1 and self.strategy == "fsdp"

    def add(self, numbers: Sequence[float]) -> list[float]:
        """Sums over all ranks, on the CPU: the device is never waited for."""
        return self._reduce(numbers, dist.ReduceOp.SUM) if self.world > 1 else list(numbers)

    def least(self, number: float) -> float:
        """The smallest value of any rank."""
        return self._reduce([number], dist.ReduceOp.MIN)[0] if self.world > 1 else number

    def most(self, numbers: torch.Tensor) -> list[float]:
        """The largest value of each number (N) on any rank."""
        found = cast(list[float], numbers.tolist())
        return self._reduce(found, dist.ReduceOp.MAX) if self.world > 1 else found

    def gather(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The rows (N, …) of every rank, in the order of the ranks; ranks may have different numbers of rows."""
        if self.world == 1:
            return [rows]
        counts = [int(n) for n in self.add([float(len(rows)) if rank == self.rank else 0.0 for rank in range(self.world)])]
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(found, padded)
        return [one[:count] for one, count in zip(found, counts, strict=True)]

    def _reduce(self, numbers: Sequence[float], operation: Any) -> list[float]:
        together = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(together, op=operation)
        return cast(list[float], together.tolist())

    def wrap(self, step: Step) -> nn.Module:
        """The module to call: `step` itself, or `step` under DDP or FSDP2. `step` keeps its parameters' names."""
        if self.world == 1:
            return step
        if self.strategy == "fsdp":
            _shard(step, self.device)
            return step
        from torch.nn.parallel import DistributedDataParallel

        # Entries with other heads leave parameters without gradient, the same ones on every rank.
        return DistributedDataParallel(
            step, broadcast_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=len(step.entries) > 1
        )

    def syncing(self, module: Any, last: bool) -> AbstractContextManager[None]:
        """The context of one micro-batch: gradients are exchanged in the step's last one only."""
        if self.world == 1:
            return nullcontext()
        if self.strategy == "fsdp":
            module.set_requires_gradient_sync(last)
            return nullcontext()
        return nullcontext() if last else cast(AbstractContextManager[None], module.no_sync())


def processes() -> int:
    """How many processes torchrun started, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def join(device: str = "auto", strategy: Strategy = "ddp") -> Iterator[Ranks]:
    """Join the processes that torchrun started (RANK, WORLD_SIZE, LOCAL_RANK) until this one ends; without torchrun, a single
    rank."""
    world, chosen = processes(), choose_device(device)
    if world == 1:
        yield Ranks(0, 1, chosen)
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    if not dist.is_initialized():
        # Once a process: torch's functional collectives, FSDP's among them, do not find a second group of the same name.
        dist.init_process_group("cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo")
        atexit.register(_leave)
    yield Ranks(dist.get_rank(), world, chosen, strategy)
    dist.barrier()  # a rank that leaves early closes connections that the others still use, and gloo then aborts


def _leave() -> None:
    """Leave the group before the interpreter ends.

    A thread of gloo takes the interpreter's lock to free the tensors of the last collective; if it does so after the interpreter
    has started to shut down, the process aborts (SIGABRT). The pause lets it finish before.
    """
    dist.destroy_process_group()
    time.sleep(0.2)


def _shard(step: Step, device: torch.device) -> None:
    """FSDP2: each depth group that shares no parameter is a shard group; the rest belongs to the root, gathered for the whole
    step.

    torch refuses a parameter that is visible to two groups, so tied embeddings and heads go to the root; so do layers
    whose maps other layers use (`lends`), which are gathered there.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    owners: dict[int, int] = {}
    for _, parameter in step.named_parameters(remove_duplicate=False):
        owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    networks: list[Any] = list(step.networks.values())
    for group in [group for network in networks for group in network.depth_groups()[1:]]:
        if not getattr(group, "lends", False) and all(owners[id(parameter)] == 1 for parameter in group.parameters()):
            fully_shard(group, mesh=mesh)
    fully_shard(step, mesh=mesh, reshard_after_forward=False)
    register_fsdp_forward_method(step, "run")
