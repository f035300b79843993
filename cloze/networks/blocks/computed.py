"""Linear maps: those whose weight is computed, where low-rank updates, masks and rounding act, and maps used in part."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ComputedLinear(nn.Linear):
    """A linear map that passes its own weight through `changes`, in order, whenever the weight is read.

    The map itself, a recurrence, a slice of stacked projections and a fused function all read `weight`, so all of them use the
    computed one. In a state dict the own weight keeps its name; what the changes hold is under `changes.NAME.`.
    """

    changes: nn.ModuleDict

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The computed weight, (out, in)."""
        made = self._parameters["weight"]
        assert made is not None  # a linear map always has one
        for change in self.changes.values():
            made = change(made)
        return made


def compute_weight(linear: nn.Linear, name: str, change: nn.Module) -> None:
    """Pass the weight of `linear` through one more `change`, a module from weight to weight; the map is changed in place.

    Layers that share the map share the change. The change gets a number if the map already has one of that `name`.
    """
    if type(linear) is nn.Linear:
        linear.__class__ = ComputedLinear
        linear.changes = nn.ModuleDict()
    assert isinstance(linear, ComputedLinear)  # no network has maps of other kinds
    number = sum(known.partition("_")[0] == name for known in linear.changes)
    linear.changes[name if not number else f"{name}_{number + 1}"] = change


@torch.no_grad()
def keep_computed(root: nn.Module) -> None:
    """Make every computed weight below `root` the own weight of its map, and the map an ordinary `nn.Linear` again."""
    for module in root.modules():
        if isinstance(module, ComputedLinear):
            made = module.weight.detach().clone()
            del module.changes
            module.__class__ = nn.Linear  # type: ignore[assignment]  # as `compute_weight` found it
            module.weight.copy_(made)


def is_added(name: str) -> bool:
    """Whether a name in a network belongs to something that a change added: to a map (`changes`), around layers (`around`) or
    around the whole network (`outside`)."""
    return not {"changes", "around", "outside"}.isdisjoint(name.split(".")[:-1])


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
