"""Training state as plain tensors by name: gathered from any number of ranks and restored on any number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cloze.errors import CheckpointError
from cloze.training.sharding import is_sharded, local, whole

Fetch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Gathering:
    """How a state is gathered: `kept` on this rank or only sent to the one that keeps it; `copied`: as a copy, which further
    training does not change."""

    kept: bool = True
    copied: bool = False

    def __call__(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """The tensors, each whole and on the CPU; nothing where they are not kept. A collective for those that are sharded."""
        gathered: dict[str, Tensor] = {}
        for name, tensor in tensors:
            full = whole(tensor.detach())
            if self.kept:
                moved = full.cpu()
                gathered[name] = moved.clone() if self.copied and _same_memory(moved, local(tensor)) else moved
        return gathered


EVERYWHERE = Gathering()


def _same_memory(tensor: Tensor, other: Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def gather_parameters(module: nn.Module, gathering: Gathering = EVERYWHERE) -> dict[str, Tensor]:
    """Every parameter and persistent buffer, whole, on the CPU, by its first name. A collective under FSDP."""
    return gathering(_tensors(module).items())


def with_shared_names(module: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same state under all names: a tied parameter under each name it has."""
    first: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        tensors[name] = state[first.setdefault(id(parameter), name)]
    return {**state, **tensors}


def without(state: Mapping[str, Tensor], parts: frozenset[str]) -> dict[str, Tensor]:
    """The entries of a state that belong to none of these parts (`networks.teacher`)."""
    return {name: value for name, value in state.items() if not any(name.startswith(part + ".") for part in parts)}


def load_parameters(
    module: nn.Module, state: Mapping[str, Tensor], *, where: str, borrowed: frozenset[str] = frozenset(),
    fetch: Fetch = lambda tensor: tensor,
) -> None:
    """Restore a gathered state, which does not hold the parts that are `borrowed`.

    `fetch` turns each tensor of the state into the one to restore: it may come from another rank.

    Raises:
        CheckpointError: names or shapes differ from the module's.
    """
    tensors = without(_tensors(module), borrowed)
    _compare({n: tuple(t.shape) for n, t in tensors.items()}, {n: tuple(t.shape) for n, t in state.items()}, where)
    with torch.no_grad():
        for name, tensor in tensors.items():
            put_whole(tensor, fetch(state[name]))


def gather_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, gathering: Gathering = EVERYWHERE
) -> dict[str, Tensor]:
    """The optimizer's tensors as `<parameter>:<key>`, whole, on the CPU. A collective under FSDP."""
    return gathering(
        (f"{name}:{key}", value) for name, parameter in module.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    )


def load_optimizer(
    optimizer: torch.optim.Optimizer, module: nn.Module, state: Mapping[str, Tensor], *, where: str,
    fetch: Fetch = lambda tensor: tensor,
) -> None:
    """Restore a gathered optimizer state, sharded as the parameters are; `fetch` as in `load_parameters`."""
    parameters = dict(module.named_parameters())
    states: dict[str, dict[str, Any]] = {}
    for full, value in state.items():
        name, _, key = full.rpartition(":")
        if name not in parameters or not _fits(value, parameters[name]):
            raise CheckpointError(f"{where}: the optimizer state of {name!r} does not fit this run's parameters.")
        states.setdefault(name, {})[key] = value
    for name, values in states.items():
        parameter = parameters[name]
        slots = optimizer.state[parameter]
        for key, saved in values.items():
            value = fetch(saved)
            if value.shape != parameter.shape:
                slots[key] = value.clone().to(parameter.device)
                continue
            slots[key] = torch.zeros_like(parameter, requires_grad=False)
            put_whole(slots[key], value)


def _fits(value: Tensor, parameter: nn.Parameter) -> bool:
    """Whether a state belongs to a parameter: one number, one for each of its own, or the rows or columns of its parts."""
    if value.shape == parameter.shape or not value.dim():
        return True
    parts = value.shape[0]
    return (value.numel(), parts) in {(len(parameter), parts), (parts * parameter[0].numel(), parts)}


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters once each, and the buffers that belong to the state."""
    persistent = module.state_dict(keep_vars=True)
    buffers = {name: value for name, value in module.named_buffers() if name in persistent}
    return {**dict(module.named_parameters()), **buffers}


@torch.no_grad()
def put_whole(target: Tensor, tensor: Tensor) -> None:
    """Copy a whole tensor into one that may be sharded: every rank takes its own part."""
    if not is_sharded(target):
        target.copy_(tensor)
        return
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = target
    placed = distribute_tensor(tensor.to(target.device), sharded.device_mesh, sharded.placements, src_data_rank=None)
    sharded.to_local().copy_(placed.to_local())


def _compare(run_shapes: Mapping[str, tuple[int, ...]], saved_shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    for name in run_shapes.keys() | saved_shapes.keys():
        if run_shapes.get(name) != saved_shapes.get(name):
            raise CheckpointError(
                f"{where}: parameter {name!r} has the shape {saved_shapes.get(name, 'absent')} in the checkpoint and "
                f"{run_shapes.get(name, 'absent')} in this run. Was the recipe, its size or the vocabulary changed?"
            )


def part_state(state: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part (`networks.main`, `objectives.token_prediction`) out of a step's full state, unprefixed."""
    return {name[len(part) + 1:]: tensor for name, tensor in state.items() if name.startswith(part + ".")}
