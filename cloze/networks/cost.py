"""What a pass costs: the floating-point operations of forward and backward that a budget in FLOPs counts.

Products count, and nothing else: a number of a weight that meets a row is multiplied and added once forward, once for the
gradient of the row and once for its own. A device may skip some of it (layers at positions that are not read) or do it twice; a
budget buys the same everywhere. Padding of rows is not counted. The contract in `tests/recipes/test_flops.py` holds every recipe
to what `torch.utils.flop_counter` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

from cloze import fields

#: Operations for one multiplication of a product whose two sides both need a gradient, and of one where one side is constant.
TRAINED, CONSTANT = 6.0, 4.0


class Shown(NamedTuple):
    """What a network reads of one sequence: rows, real tokens, and the length of the rows."""

    rows: int
    tokens: int
    length: int


def shown(given: Mapping[str, Tensor], name: str | None = None, block: str = "block") -> Shown:
    """The size of a sequence among the fields of a pass, by default that of its view; `block` is 0 at padding."""
    rows, length = given[name or fields.sequence(given) or "tokens"].shape[:2]
    tokens = int((given[block] > 0).sum()) if block in given else rows * length
    return Shown(rows, tokens, length)


def maps(*modules: nn.Module | None) -> int:
    """The numbers in all linear maps of some modules: multiplications for one row."""
    inside = [part for module in modules if module is not None for part in module.modules()]
    return sum(part.in_features * part.out_features for part in inside if isinstance(part, nn.Linear))


def per_token(given: Mapping[str, Tensor], cost: Callable[[int], float]) -> float:
    """The operations of a pass whose tokens all cost the same, by the length of the rows; 0 of a pass without tokens."""
    if fields.sequence(given) is None:
        return 0.0
    size = shown(given)
    return size.tokens * cost(size.length)
