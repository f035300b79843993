"""Tensors that may be sharded over ranks."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether the tensor is a DTensor: this rank's part of a larger one."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Tensor:
    """The tensor itself, or this rank's part of a sharded one."""
    part: Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return part


def whole(tensor: Any) -> Tensor:
    """The tensor itself, or all of a sharded one: then a collective. Where one rank has all of it, that is its own memory."""
    full: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return full


def spread(change: Tensor, parameter: Tensor) -> Tensor:
    """The part of a whole tensor that belongs to this rank's part of a parameter; all of it if the parameter is not sharded."""
    if not is_sharded(parameter):
        return change
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = parameter
    return distribute_tensor(change, sharded.device_mesh, sharded.placements, src_data_rank=None)
