"""What a pass costs: the floating-point operations of forward and backward that a budget in FLOPs counts.

Products count, and nothing else: a number of a weight that meets a row is multiplied and added once forward, once for the
gradient of the row and once for its own. Without a gradient it is not: a frozen weight needs none, and neither do the rows below
the lowest trained weight. A device may skip some products (layers at positions that are not read) or do them twice; a budget
buys the same everywhere. Padding of rows is not counted. The contracts in `tests/recipes/test_flops.py` hold every recipe, every
change and every way of freezing to what `torch.utils.flop_counter` finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from cloze import fields

_ONE = 2.0  # operations of a multiplication: it is added, too


class SequenceSize(NamedTuple):
    """What a network reads of one sequence: rows, real tokens, and the length of the rows."""

    rows: int
    tokens: int
    length: int


def shown(given: Mapping[str, Tensor], name: str | None = None, block: str = "block") -> SequenceSize:
    """The size of a sequence among the fields of a pass, by default that of its view; `block` is 0 at padding."""
    rows, length = given[name or fields.sequence(given) or "tokens"].shape[:2]
    tokens = int((given[block] > 0).sum()) if block in given else rows * length
    return SequenceSize(rows, tokens, length)


def shown_items(given: Mapping[str, Tensor], set: str) -> SequenceSize | None:
    """The size of the items of that set among the fields of a pass, or None if it has none."""
    features, real = given.get(f"item_vectors/{set}"), given.get(f"item_length/{set}")
    if features is None:
        return None
    rows, length = features.shape[:2]
    return SequenceSize(rows, rows * length if real is None else int(real.sum()), length)


class Operations:
    """The operations of a pass, counted along its way: `total`.

    `live`: whether the rows at this point need a gradient, that is, whether a weight that they have met is trained. `gradients`:
    whether the pass has a backward pass at all. A gradient costs what the product cost.
    """

    def __init__(self, *, live: bool = False, gradients: bool = True) -> None:
        self.total, self.live, self.gradients = 0.0, live, gradients

    def branch(self, *, live: bool | None = None) -> Operations:
        """A count of its own, for a branch that begins here, or, with `live`, elsewhere; `join` adds it."""
        return Operations(live=self.live if live is None else live, gradients=self.gradients)

    def join(self, *branches: Operations, share: float = 1.0) -> None:
        """Add what branches cost, or a share of it. Rows are live after them if those of one branch are."""
        self.total += share * sum(branch.total for branch in branches)
        self.live = self.live or any(branch.live for branch in branches)

    def maps(self, rows: float, *modules: nn.Module | None, without: Sequence[nn.Module | None] = ()) -> None:
        """So many rows meet the linear maps inside some modules, in the order in which these are registered.

        `without` are modules inside them that other rows meet.
        """
        for module in modules:
            if isinstance(module, nn.Linear):
                self.weights(rows * module.in_features * module.out_features, trained=is_trained(module))
                self.total += computing(module, self.gradients)
            elif module is not None:
                self.maps(rows, *(inner for inner in module.children() if inner not in without), without=without)
                self.live = self.live or any(parameter.requires_grad for parameter in module.parameters(recurse=False))

    def weights(self, multiplications: float, *, trained: bool, live: bool | None = None) -> None:
        """Rows meet weights; `live` is about rows from elsewhere, such as a memory, which need no gradient."""
        self._add(multiplications, (self.live if live is None else live) + trained)
        self.live = self.live or trained

    def products(self, multiplications: float) -> None:
        """Rows meet rows, as in attention; both need a gradient, or neither."""
        self._add(multiplications, 2 * self.live)

    def constants(self, multiplications: float) -> None:
        """Rows meet numbers that are never trained."""
        self._add(multiplications, int(self.live))

    def above(self, *modules: nn.Module | None) -> None:
        """The rows have passed modules whose parameters need no products, such as tables and norms."""
        self.live = self.live or any(map(is_trained, modules))

    def _add(self, multiplications: float, gradients: int) -> None:
        self.total += _ONE * multiplications * (1 + gradients * self.gradients)


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
    return sum(
        _ONE * float(getattr(change, "products", 0)) * (1 + 2 * (gradients and is_trained(change))) for change in changes.values()
    )
