"""Linear maps that are stacked in one weight, and used in part."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def untouched(module: nn.Module) -> bool:
    """Whether no hook is to be called with a module."""
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def part_of(linear: nn.Module, x: Tensor, start: int, stop: int | None = None) -> Tensor:
    """The outputs from `start` to `stop` of a linear map; one that was replaced or is hooked is called whole."""
    if type(linear) is not nn.Linear or not untouched(linear):
        made: Tensor = linear(x)[..., start:stop]
        return made
    return F.linear(x, linear.weight[start:stop], None if linear.bias is None else linear.bias[start:stop])
