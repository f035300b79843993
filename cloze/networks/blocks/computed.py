"""Linear maps and tables whose weight is computed, where low-rank updates, masks and rounding act, maps whose inputs are changed,
and maps used in part."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Computed(nn.Module):
    """Passes the module's own weight through `changes`, in order, whenever the weight is read."""

    changes: nn.ModuleDict

    @property
    def weight(self) -> Tensor:
        """The computed weight, in the shape of the own one."""
        weight: Tensor = own_weight(self)
        for change in self.changes.values():
            weight = change(weight)
        return weight


class ComputedLinear(_Computed, nn.Linear):  # type: ignore[override]
    """A linear map that passes its own weight through `changes` whenever the weight is read.

    The map itself, a recurrence, a slice of stacked projections and a fused function all read `weight`, so all of them use the
    computed one. In a state dict the own weight keeps its name; what the changes hold is under `changes.NAME.`.
    """


class ComputedTable(_Computed, nn.Embedding):  # type: ignore[override]
    """A table of vectors whose weight is computed in the same way; a head that is tied to it reads the computed rows."""


class SurroundedLinear(ComputedLinear):
    """A linear map whose input and output pass through the modules in `around`, each by its methods `read` and `give`.

    Only a call of the map computes that, so fast functions leave it to the plain modules.
    """

    around: nn.ModuleDict

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) to (…, out)."""
        return self.part(x, 0, None)

    def part(self, x: Tensor, start: int, stop: int | None) -> Tensor:
        """The outputs from `start` to `stop`."""
        hooks: list[Any] = list(self.around.values())
        for hook in hooks:
            x = hook.read(x)
        outputs = F.linear(x, self.weight[start:stop], None if self.bias is None else self.bias[start:stop])
        for hook in hooks:
            outputs = hook.give(outputs, start)
        return outputs


_COMPUTED: dict[type, type] = {nn.Linear: ComputedLinear, nn.Embedding: ComputedTable}


def own_weight(owner: nn.Module) -> nn.Parameter:
    """The weight that a linear map or a table stores and trains, before any change of it."""
    weight = owner._parameters["weight"]
    assert weight is not None  # a map or a table always has one
    return weight


def resize_table(table: nn.Embedding, rows: int) -> None:
    """Replace the rows of a table by this many uninitialised ones, in place. Changes of its weight stay and get the same size."""
    weight = own_weight(table)
    table._parameters["weight"] = nn.Parameter(weight.new_empty(rows, weight.shape[1]), requires_grad=weight.requires_grad)
    table.num_embeddings = rows
    for change in table.changes.values() if isinstance(table, _Computed) else ():
        for name, buffer in change.named_buffers():
            if buffer.shape == weight.shape:
                change.register_buffer(name, buffer.new_ones(rows, weight.shape[1]))


def compute_weight(owner: nn.Linear | nn.Embedding, name: str, change: nn.Module) -> None:
    """Pass the weight of a linear map or a table through one more `change`, a module from weight to weight; in place.

    Layers that share the map share the change. The change gets a number if the map already has one of that `name`.
    """
    _make_computed(owner)
    assert isinstance(owner, _Computed)  # no network has maps of other kinds
    number = sum(name in (existing, existing.rpartition("_")[0]) for existing in owner.changes)
    owner.changes[name if not number else f"{name}_{number + 1}"] = change


def surround(owner: nn.Linear, name: str, module: nn.Module) -> None:
    """Pass the input of a linear map through `module.read`, and its outputs from `start` on through `module.give(made, start)`;
    shapes stay. In place.

    Layers that share the map share the module.
    """
    _make_computed(owner)
    surrounded: Any = owner  # its class changes below
    if not isinstance(owner, SurroundedLinear):
        surrounded.__class__ = SurroundedLinear
        surrounded.around = nn.ModuleDict()
    surrounded.around[name] = module


def _make_computed(owner: nn.Module) -> None:
    if type(owner) in _COMPUTED:
        owner.__class__ = _COMPUTED[type(owner)]
        owner.changes = nn.ModuleDict()


@torch.no_grad()
def keep_computed(root: nn.Module) -> None:
    """Make every computed weight below `root` the own weight of its map, and the map an ordinary one again, with nothing around
    it."""
    for module in list(root.modules()):
        if isinstance(module, _Computed):
            weight = module.weight.detach().clone()
            del module.changes
            if isinstance(module, SurroundedLinear):
                del module.around
            module.__class__ = next(plain for plain, computed in _COMPUTED.items() if isinstance(module, computed))
            module.weight.copy_(weight)


@torch.no_grad()
def bake_computed(root: nn.Module) -> None:
    """Make every computed weight below `root` the own weight of its map, and keep the changes: for changes that leave what they
    have computed as it is, such as masks."""
    for module in root.modules():
        if isinstance(module, _Computed):
            own_weight(module).copy_(module.weight)


def is_added(name: str) -> bool:
    """Whether a name in a network belongs to something that a change added: to a map (`changes`), around a map or layers
    (`around`), or around the whole network (`outside`)."""
    return not {"changes", "around", "outside"}.isdisjoint(name.split(".")[:-1])


def untouched(module: nn.Module) -> bool:
    """Whether a module has no hooks."""
    return not (module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a linear map of its `weight` and `bias` and nothing else, so that a function may read these alone."""
    return type(module) in (nn.Linear, ComputedLinear) and untouched(module)


def part_of(linear: nn.Module, x: Tensor, start: int, stop: int | None = None) -> Tensor:
    """The outputs from `start` to `stop` of a linear map; one that was replaced or is hooked is called whole."""
    if isinstance(linear, SurroundedLinear) and untouched(linear):
        return linear.part(x, start, stop)
    if not is_linear(linear):
        outputs: Tensor = linear(x)[..., start:stop]
        return outputs
    assert isinstance(linear, nn.Linear)  # as `is_linear` says
    return F.linear(x, linear.weight[start:stop], None if linear.bias is None else linear.bias[start:stop])
