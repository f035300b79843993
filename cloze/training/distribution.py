"""Ranks: the processes of a run, DDP or FSDP2 around the single `StepModule`, and what all ranks must agree on.

Whatever starts the processes sets RANK and WORLD_SIZE in each: torchrun, srun, mpirun with a wrapper, Ray Train. They meet at
MASTER_ADDR and MASTER_PORT, unless their process group exists already. None waits for another longer than CLOZE_TIMEOUT (30 min).
"""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import nn

from cloze.errors import BudgetError, DeviceError, RunError, UserError
from cloze.processes import processes, rank
from cloze.training.precision import choose_device
from cloze.training.schedule.budget import Budget
from cloze.training.step import StepModule
from cloze.training.tensors import NAMES

Strategy = Literal["ddp", "fsdp"]

_TIMEOUT = "30m"
_PORT = "cloze/port"
_PAUSE = 0.2  # seconds before a port that refused a connection is asked for again
_LOST = re.compile(r"(?i)timed? ?out|connection (closed|reset|refused)|broken pipe|peer|socket|watchdog")


@dataclass(frozen=True)
class Ranks:
    """This process among the processes of the run. One process alone is rank 0 of 1 and never communicates.

    `shard` is how many ranks share one copy of the parameters under FSDP (None: all of them).
    """

    rank: int
    world: int
    device: torch.device
    strategy: Strategy = "ddp"
    shard: int | None = None

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and speaks to the user."""
        return self.rank == 0

    @property
    def sharded(self) -> bool:
        """Whether every forward pass is a collective, so that all ranks must run the same number."""
        return self.world > 1 and self.strategy == "fsdp"

    def add(self, numbers: Sequence[float]) -> list[float]:
        """Sums over all ranks in one collective, on the CPU where the group can: then the device is not waited for."""
        return self._reduce(numbers, dist.ReduceOp.SUM) if self.world > 1 else list(numbers)

    def least(self, number: float) -> float:
        """The smallest value of any rank."""
        return self._reduce([number], dist.ReduceOp.MIN)[0] if self.world > 1 else number

    def most(self, numbers: torch.Tensor) -> list[float]:
        """The largest value of each number (N) on any rank."""
        values = cast(list[float], numbers.tolist())
        return self._reduce(values, dist.ReduceOp.MAX) if self.world > 1 else values

    def gather(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """The rows (N, …) of every rank, in the order of the ranks; ranks may have different numbers of rows."""
        if self.world == 1:
            return [rows]
        counts = [int(n) for n in self.add([float(len(rows)) if rank == self.rank else 0.0 for rank in range(self.world)])]
        padded = rows.new_zeros(max(counts), *rows.shape[1:])
        padded[: len(rows)] = rows
        blocks = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(blocks, padded)
        return [block[:count] for block, count in zip(blocks, counts, strict=True)]

    def broadcast(self, tensor: torch.Tensor) -> torch.Tensor:
        """The first rank's tensor on every rank; the others give one of its shape and type, which may be on `meta`."""
        if self.world == 1:
            return tensor
        sent = tensor.to(self.meeting) if self.first else torch.empty(tensor.shape, dtype=tensor.dtype, device=self.meeting)
        if sent.numel():
            dist.broadcast((sent := sent.contiguous()).reshape(-1).view(torch.uint8), src=0)
        return sent

    def broadcast_data(self, data: Any = None) -> Any:
        """The first rank's plain data (JSON) on every rank."""
        if self.world == 1:
            return data
        text = json.dumps(data).encode() if self.first else b""
        size = int(self.add([float(len(text))])[0])
        sent = torch.frombuffer(bytearray(text), dtype=torch.uint8) if self.first else torch.empty(size, dtype=torch.uint8)
        return json.loads(bytes(self.broadcast(sent).tolist()))

    def announce_tensors(self, tensors: Mapping[str, torch.Tensor] | None = None) -> dict[str, torch.Tensor]:
        """The names of the first rank's tensors with the tensors themselves there, and on `meta` on all other ranks.

        `broadcast` then brings them one by one, so that no other rank ever holds all of them.
        """
        if self.world == 1:
            return dict(tensors or {})
        layouts = {name: [list(tensor.shape), NAMES[tensor.dtype]] for name, tensor in (tensors or {}).items()}
        layouts = self.broadcast_data(layouts)
        if self.first:
            return dict(tensors or {})
        kinds = {name: kind for kind, name in NAMES.items()}
        return {name: torch.empty(shape, dtype=kinds[kind], device="meta") for name, (shape, kind) in layouts.items()}

    @property
    def meeting(self) -> torch.device:
        """Where tensors meet those of other ranks: on the CPU if the process group has a backend for it, else on the device."""
        has_cpu = "cpu" in str(dist.get_backend_config()) or dist.get_backend() == "gloo"
        return torch.device("cpu") if has_cpu else self.device

    def _reduce(self, numbers: Sequence[float], operation: Any) -> list[float]:
        together = torch.tensor(numbers, dtype=torch.float64, device=self.meeting)
        dist.all_reduce(together, op=operation)
        return cast(list[float], together.tolist())

    def wrap(self, step: StepModule, *, half: bool = False) -> nn.Module:
        """The module to call: `step` itself, or `step` under DDP or FSDP2. `step` keeps its parameters' names.

        With `half`, FSDP gathers parameters in bfloat16; gradients are added in float32.
        """
        if self.world == 1:
            return step
        if self.strategy == "fsdp":
            _shard(step, self.device, self.shard, half=half)
            return step
        from torch.nn.parallel import DistributedDataParallel

        # Entries with other heads leave parameters without gradient, the same ones on every rank. Where none are looked for, DDP
        # sorts its buckets again after the first step: a resumed run would add the gradients of three ranks in another order.
        unused = len(step.entries) > 1 or (self.device.type == "cpu" and self.world > 2)
        with warnings.catch_warnings():  # torch 2.12 prefers an argument that earlier versions lack and that still syncs once
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(
                step, broadcast_buffers=False, gradient_as_bucket_view=True, find_unused_parameters=unused
            )

    def syncing(self, module: Any, last: bool) -> AbstractContextManager[None]:
        """The context of one micro-batch: gradients are exchanged in the step's last one only."""
        if self.world == 1:
            return nullcontext()
        if self.strategy == "fsdp":
            module.set_requires_gradient_sync(last)
            return nullcontext()
        return nullcontext() if last else cast(AbstractContextManager[None], module.no_sync())


@contextmanager
def join(device: str = "auto", strategy: Strategy = "ddp", shard: int | None = None) -> Iterator[Ranks]:
    """Join the processes of the run (RANK, WORLD_SIZE, LOCAL_RANK) until this one ends; alone without them.

    Raises:
        UserError: as `check_launch`.
        DeviceError: the processes did not all meet within the time limit.
        RunError: another process is gone, or was waited for longer than the time limit.
    """
    check_launch(strategy, shard)
    world, chosen = processes(), choose_device(device)
    if world == 1:
        yield Ranks(0, 1, chosen)
        return
    if chosen.type == "cuda":
        local = os.environ.get("LOCAL_RANK", str(rank() % max(1, torch.cuda.device_count())))
        chosen = torch.device("cuda", int(local))
        torch.cuda.set_device(chosen)
    if not dist.is_initialized():
        _meet(chosen, world)
    ranks = Ranks(dist.get_rank(), world, chosen, strategy, shard)
    try:
        yield ranks
        dist.barrier()  # a rank that leaves early closes connections that the others still use, and gloo then aborts
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or not _LOST.search(str(error)):
            raise
        raise RunError(
            f"rank {ranks.rank} of {world}: lost another process, or waited for it longer than {time_limit()}: "
            f"{str(error).strip().splitlines()[0]}\n"
            "  Its own output says why it ended. Start all processes again: the run continues from its last checkpoint "
            "(torchrun --max-restarts does so by itself).\n"
            "  If a step or a checkpoint really takes so long, allow more: CLOZE_TIMEOUT=2h."
        ) from error


def check_launch(strategy: Strategy, shard: int | None) -> None:
    """Refuse what `join` cannot start, before anything is written.

    Raises `UserError` if a variable of the environment is missing or unusable, or `shard` does not divide the number of ranks.
    """
    world = processes()
    if shard is not None and (strategy != "fsdp" or shard < 1 or world % shard):
        raise UserError(
            f"--shard {shard}: needs --strategy fsdp, and must divide the number of processes, {world}. Each group of that many "
            "processes shares one copy of the parameters."
        )
    if world == 1:
        return
    time_limit()
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing and not dist.is_initialized():
        raise UserError(
            f"WORLD_SIZE is {world}, but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set.\n"
            "  torchrun sets all of them. With srun or mpirun, set RANK and WORLD_SIZE from their own variables "
            "(RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS),\n  and MASTER_ADDR and MASTER_PORT to the first host and a free port."
        )
    if not dist.is_initialized():
        rank()
        if not (port := os.environ["MASTER_PORT"]).isdecimal() or not 0 < int(port) < 1 << 16:
            raise UserError(f"MASTER_PORT={port}: expected the number of a port of MASTER_ADDR, such as 29500.")
        try:
            socket.getaddrinfo(address := os.environ["MASTER_ADDR"], int(port))
        except OSError as error:
            raise UserError(
                f"MASTER_ADDR={address}: {error.strerror or error}. Give the name or the address of the host of rank 0, as this "
                "host knows it."
            ) from None


def time_limit() -> timedelta:
    """How long a process waits for another one: CLOZE_TIMEOUT, such as 90s, 30m or 2h. Raises `UserError` for anything else."""
    text = os.environ.get("CLOZE_TIMEOUT", _TIMEOUT)
    with suppress(BudgetError, OverflowError):
        budget = Budget.parse(text)
        if budget.kind == "seconds":
            return timedelta(seconds=budget.amount)
    raise UserError(f"CLOZE_TIMEOUT={text}: expected a duration, such as 90s, 30m or 2h.")


def _meet(device: torch.device, world: int) -> None:
    """Make the process group of all ranks.

    Once a process: torch's functional collectives, FSDP's among them, do not find a second group of the same name.
    """
    limit = time_limit()
    try:
        store = own_store(rank(), limit)
        membership = (-1, -1) if store is None else (rank(), world)  # -1: as the environment says
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=limit, store=store, rank=membership[0], world_size=membership[1])
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise DeviceError(
            f"rank {os.environ['RANK']} of {world}: the processes did not all meet at {where} within {limit}: "
            f"{str(error).strip().splitlines()[0]}\n"
            "  Start as many as WORLD_SIZE says, each with a RANK of its own, where MASTER_ADDR can be reached."
        ) from error
    atexit.register(_leave)


def own_store(rank: int, limit: timedelta) -> dist.Store | None:
    """A store for these processes alone; None if MASTER_PORT is no store of torchrun's.

    That one outlives the processes that torchrun restarts: who looks for addresses there may find those of the dead, in
    particular if another host restarted earlier. So rank 0 makes a store and writes its port there. A port of the dead refuses
    connections and is asked for again.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    address = os.environ["MASTER_ADDR"]
    common = dist.TCPStore(address, int(os.environ["MASTER_PORT"]), is_master=False, timeout=limit)
    if rank == 0:
        store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=limit)
        common.set(_PORT, str(store.port))
        return store
    until = time.monotonic() + limit.total_seconds()
    while True:
        port = int(common.get(_PORT))
        try:
            socket.create_connection((address, port), timeout=limit.total_seconds()).close()
        except OSError as error:
            if time.monotonic() > until:
                raise RuntimeError(f"{address}:{port}: {error.strerror or error}") from error
            time.sleep(_PAUSE)
            continue
        return dist.TCPStore(address, port, is_master=False, timeout=limit)


def _leave() -> None:
    """Leave the group before the interpreter ends.

    A thread of gloo takes the interpreter's lock to free the tensors of the last collective; if it does so after the interpreter
    has started to shut down, the process aborts (SIGABRT). The pause lets it finish before.
    """
    dist.destroy_process_group()
    time.sleep(0.2)


def _shard(step: StepModule, device: torch.device, shard: int | None, *, half: bool) -> None:
    """FSDP2: each depth group that shares no parameter is a shard group; the rest belongs to the root, gathered for the whole
    step.

    torch refuses a parameter that is visible to two groups, so tied embeddings and heads go to the root; so do layers
    whose maps other layers use (`lends`), which are gathered there. With `shard`, so many ranks hold the parameters once, and the
    groups are copies of one another: parameters are gathered within a group, gradients are then added over the groups.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    world = dist.get_world_size()
    shape, names = ((world,), ("shard",)) if shard is None else ((world // shard, shard), ("copy", "shard"))
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else MixedPrecisionPolicy()
    owners: dict[int, int] = {}
    for _, parameter in step.named_parameters(remove_duplicate=False):
        owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    networks: list[Any] = list(step.networks.values())
    for group in [group for network in networks for group in network.depth_groups()[1:]]:
        if not getattr(group, "lends", False) and all(owners[id(parameter)] == 1 for parameter in group.parameters()):
            fully_shard(group, mesh=mesh, mp_policy=policy)
    fully_shard(step, mesh=mesh, reshard_after_forward=False, mp_policy=policy)
    register_fsdp_forward_method(step, "states_of")
