"""Linear maps that are stacked in one weight, and used in part."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.computed import ComputedLinear


def untouched(module: nn.Module) -> bool:
    """Whether a module has no hooks."""
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear map of its `weight` and `bias` and nothing else, so that a function may read these alone."""
    return type(module) in (nn.Linear, ComputedLinear) and untouched(module)


def part_of(linear: nn.Module, x: Tensor, start: int, stop: int | None = None) -> Tensor:
    """The outputs from `start` to `stop` of a linear map; one that was replaced or is hooked is called whole."""
    if not is_linear(linear):
        made: Tensor = linear(x)[..., start:stop]
        return made
    assert isinstance(linear, nn.Linear)  # as `is_linear` says
    return F.linear(x, linear.weight[start:stop], None if linear.bias is None else linear.bias[start:stop])
