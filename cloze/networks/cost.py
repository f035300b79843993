"""What a pass costs: the floating-point operations of forward and backward that a budget in FLOPs counts.

Only matrix products count. Each weight costs one multiply-add per row in the forward pass, one for the gradient of the input and
one for its own gradient. Frozen weights skip the last; layers below the lowest trained weight skip both. A device may skip some
products (layers at positions that are not read) or repeat them; a budget buys the same everywhere. Padding is not counted.
`tests/recipes/test_flops.py` compares the count of every recipe, change and way of freezing with `torch.utils.flop_counter`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from cloze import fields

_MULTIPLY_ADD = 2.0  # operations: a multiplication and an addition


class SequenceSize(NamedTuple):
    """What a network reads of one sequence: rows, real tokens, and the length of the rows."""

    rows: int
    tokens: int
    length: int


def shown(batch: Mapping[str, Tensor], name: str | None = None, block: str = "block") -> SequenceSize:
    """The size of a sequence among the fields of a pass, by default that of its view; `block` is 0 at padding."""
    rows, length = batch[name or fields.sequence(batch) or "tokens"].shape[:2]
    tokens = int((batch[block] > 0).sum()) if block in batch else rows * length
    return SequenceSize(rows, tokens, length)


def shown_items(batch: Mapping[str, Tensor], set: str) -> SequenceSize | None:
    """The size of the items of that set among the fields of a pass, or None if it has none."""
    features, real = batch.get(f"item_vectors/{set}"), batch.get(f"item_length/{set}")
    if features is None:
        return None
    rows, length = features.shape[:2]
    return SequenceSize(rows, rows * length if real is None else int(real.sum()), length)


class Operations:
    """Adds up the operations of a pass (`total`). A network reports its products in the order in which its rows compute them.

    `needs_grad`: whether the rows at this point need a gradient, because a weight below is trained. `gradients`: whether there is
    a backward pass at all. Each gradient costs as much as the product itself.
    """

    def __init__(self, *, needs_grad: bool = False, gradients: bool = True) -> None:
        self.total, self.needs_grad, self.gradients = 0.0, needs_grad, gradients

    def branch(self, *, needs_grad: bool | None = None) -> Operations:
        """A separate count for a branch that starts at this point; `needs_grad` if it starts elsewhere. See `add_branches`."""
        return Operations(needs_grad=self.needs_grad if needs_grad is None else needs_grad, gradients=self.gradients)

    def add_branches(self, *branches: Operations, share: float = 1.0) -> None:
        """Add what branches cost, or a share of it. The rows then need a gradient if those of one branch do."""
        self.total += share * sum(branch.total for branch in branches)
        self.needs_grad = self.needs_grad or any(branch.needs_grad for branch in branches)

    def add_linear(self, rows: float, *modules: nn.Module | None, without: Sequence[nn.Module | None] = ()) -> None:
        """Add the products of `rows` with every linear map inside `modules`, in the order in which these are registered.

        `without` are modules inside them that other rows meet.
        """
        for module in modules:
            if isinstance(module, nn.Linear):
                self.add_weight_products(rows * module.in_features * module.out_features, trained=is_trained(module))
                self.total += computing(module, self.gradients)
            elif module is not None:
                self.add_linear(rows, *(inner for inner in module.children() if inner not in without), without=without)
                trained = any(parameter.requires_grad for parameter in module.parameters(recurse=False))
                self.needs_grad = self.needs_grad or trained

    def add_weight_products(self, multiplications: float, *, trained: bool, needs_grad: bool | None = None) -> None:
        """Add products of rows with weights. `needs_grad` is that of rows from elsewhere, such as a memory."""
        self._add(multiplications, (self.needs_grad if needs_grad is None else needs_grad) + trained)
        self.needs_grad = self.needs_grad or trained

    def add_row_products(self, multiplications: float) -> None:
        """Add products of rows with rows, as in attention; both need a gradient, or neither."""
        self._add(multiplications, 2 * self.needs_grad)

    def add_frozen_products(self, multiplications: float) -> None:
        """Add products of rows with numbers that are never trained."""
        self._add(multiplications, int(self.needs_grad))

    def pass_through(self, *modules: nn.Module | None) -> None:
        """Note that the rows pass modules without products, such as tables and norms: if one is trained, rows need a gradient."""
        self.needs_grad = self.needs_grad or any(map(is_trained, modules))

    def _add(self, multiplications: float, gradients: int) -> None:
        self.total += _MULTIPLY_ADD * multiplications * (1 + gradients * self.gradients)


def linear_maps(*modules: nn.Module | None) -> Iterator[nn.Linear]:
    """The linear maps inside some modules, in their order."""
    for module in modules:
        yield from () if module is None else (part for part in module.modules() if isinstance(part, nn.Linear))


def is_trained(module: nn.Module | None) -> bool:
    """Whether some parameter of a module is trained."""
    return module is not None and any(parameter.requires_grad for parameter in module.parameters())


def computing(linear: nn.Linear, gradients: bool) -> float:
    """The operations of computing a map's weight, where a change does: its module says how many `products` that takes."""
    changes = getattr(linear, "changes", None) or {}
    return _MULTIPLY_ADD * sum(
        float(getattr(change, "products", 0)) * (1 + 2 * (gradients and is_trained(change))) for change in changes.values()
    )
