"""What a pass costs: the floating-point operations of forward and backward that a budget in FLOPs counts.

The count walks over the modules of a network or head (`Operations.add`): rows meet each in the order of registration. A module
whose products differ from those of its linear maps, such as attention, has a method `count_operations`.

Only matrix products count. Each weight costs one multiply-add per row in the forward pass, one for the gradient of the input and
one for its own gradient. Frozen weights skip the last; layers below the lowest trained weight skip both. A device may skip some
products (layers at positions that are not read) or repeat them; a budget buys the same everywhere. Padding is not counted.
`tests/recipes/test_flops.py` compares the count of every recipe, change and way of freezing with `torch.utils.flop_counter`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from cloze import fields

_MULTIPLY_ADD = 2.0  # operations: a multiplication and an addition
_ALL_MATRICES = (nn.Conv1d, nn.RNNBase, nn.RNNCellBase)  # torch's modules in which every row meets all matrices


class SequenceSize(NamedTuple):
    """What a network reads of one sequence: rows, real tokens, and the length of the rows."""

    rows: int
    tokens: int
    length: int


class EncodedSource(NamedTuple):
    """A sequence that another one reads by attention, and whether its states need a gradient."""

    size: SequenceSize
    needs_grad: bool


def size_of(batch: Mapping[str, Tensor], view: str = "") -> SequenceSize:
    """The size of the sequence of a view (`decoder.`) among the fields of a pass, by default its own; nothing if it has none.
    `block` is 0 at padding."""
    name, block = f"{view}tokens" if view else fields.sequence(batch) or "tokens", f"{view}block"
    if name not in batch:
        return SequenceSize(0, 0, 0)
    rows, length = batch[name].shape[:2]
    tokens = int((batch[block] > 0).sum()) if block in batch else rows * length
    return SequenceSize(rows, tokens, length)


def size_of_items(batch: Mapping[str, Tensor], set: str) -> SequenceSize | None:
    """The size of the items of that set among the fields of a pass, or None if it has none."""
    features, real = batch.get(f"item_vectors/{set}"), batch.get(f"item_length/{set}")
    if features is None:
        return None
    rows, length = features.shape[:2]
    return SequenceSize(rows, rows * length if real is None else int(real.sum()), length)


@runtime_checkable
class CountsOperations(Protocol):
    """A module whose products differ from those of the modules inside it."""

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Count the products of a sequence."""


class Operations:
    """Adds up the operations of a pass over `fields` (`total`). Products are reported in the order in which rows compute them.

    `want` are the states of the network that are read, `positions` (M,) the flat positions where its last state is. `needs_grad`:
    whether the rows at this point need a gradient, because a weight below is trained. `gradients`: whether there is a backward
    pass at all. Each gradient costs as much as the product itself.
    """

    def __init__(
        self, fields: Mapping[str, Tensor] = MappingProxyType({}), *, want: frozenset[str] = frozenset(),
        positions: Tensor | None = None, needs_grad: bool = False, gradients: bool = True,
    ) -> None:
        self.fields, self.want, self.positions = fields, want, positions
        self.needs_grad, self.gradients = needs_grad, gradients
        self._sum = 0.0
        self._sides: dict[str, Operations] = {}

    @property
    def total(self) -> float:
        """The operations so far."""
        return self._sum + sum(side.total for side in self._sides.values())

    def branch(self, *, needs_grad: bool | None = None) -> Operations:
        """A separate count for a branch that starts at this point; `needs_grad` if it starts elsewhere. See `add_branches`."""
        return Operations(
            self.fields, want=self.want, positions=self.positions, gradients=self.gradients,
            needs_grad=self.needs_grad if needs_grad is None else needs_grad,
        )

    def add_branches(self, *branches: Operations, share: float = 1.0) -> None:
        """Add what branches cost, or a share of it. The rows then need a gradient if those of one branch do."""
        self._sum += share * sum(branch.total for branch in branches)
        self.join(*branches)

    def side(self, name: str) -> Operations:
        """The count of other rows that run through layers of their own, such as the items of a text. They start without
        a gradient; `total` includes them."""
        return self._sides.setdefault(name, self.branch(needs_grad=False))

    def join(self, *counts: Operations) -> None:
        """Note that the rows read those of other counts: they need a gradient if those do."""
        self.needs_grad = self.needs_grad or any(count.needs_grad for count in counts)

    def source(self, size: SequenceSize) -> EncodedSource:
        """These rows as the sequence that others read."""
        return EncodedSource(size, self.needs_grad)

    def add(self, size: SequenceSize | float, *modules: Any, without: Sequence[nn.Module] = ()) -> None:
        """Add the products of a sequence, or of so many rows that each stand alone, with everything inside `modules`, in their
        order. What is no module costs nothing. `without` are modules inside them that other rows meet."""
        size = size if isinstance(size, SequenceSize) else SequenceSize(int(size), int(size), 1)
        for module in modules:
            if not isinstance(module, nn.Module) or module in without:
                continue
            if issubclass(type(module), CountsOperations):  # which is remembered for each class
                module.count_operations(self, size)  # type: ignore[operator]
            elif isinstance(module, nn.Linear):
                self.add_weight_products(size.tokens * module.in_features * module.out_features, trained=is_trained(module))
                self._sum += computed_products(module, self.gradients)
            elif isinstance(module, nn.MultiheadAttention):
                self.add_weight_products(3 * size.tokens * module.embed_dim**2, trained=is_trained(module))
                self.add_row_products(2 * size.tokens * size.length * module.embed_dim)
                self.add(size, module.out_proj)
            elif isinstance(module, _ALL_MATRICES):
                matrices = sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)
                self.add_weight_products(size.tokens * matrices, trained=is_trained(module))
            else:
                self.add(size, *module.children(), without=without)
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
        self._sum += _MULTIPLY_ADD * multiplications * (1 + gradients * self.gradients)


def is_trained(module: nn.Module | None) -> bool:
    """Whether some parameter of a module is trained."""
    return module is not None and any(parameter.requires_grad for parameter in module.parameters())


def computed_products(linear: nn.Linear, gradients: bool) -> float:
    """The operations of computing a map's weight, where a change does: its module says how many `products` that takes."""
    changes = getattr(linear, "changes", None) or {}
    return _MULTIPLY_ADD * sum(
        float(getattr(change, "products", 0)) * (1 + 2 * (gradients and is_trained(change))) for change in changes.values()
    )
