"""How the fields of a batch reach a network: as keyword arguments; fields with a set become one mapping."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import Tensor

from cloze.networks.cost import shown


def routed(network: Any, seen: Mapping[str, Tensor], order: str) -> dict[str, Any]:
    """The fields that a network takes, by keyword; `order` holds for all rows unless the batch has an `order` field."""
    given: dict[str, Any] = {}
    for name in network.takes:
        field, keyed, chosen = name.partition("/")
        if name in seen and keyed:
            given.setdefault(field, {})[chosen] = seen[name]
        elif name in seen:
            given[name] = seen[name]
    if "order" in network.takes:
        given.setdefault("order", order)
    return given


def takes_positions(network: Any) -> bool:
    """Whether a network has the argument `positions`, and then computes its last state only there."""
    return "positions" in signature(network.forward).parameters


def few(positions: Tensor, given: Mapping[str, Tensor]) -> bool:
    """Whether so few positions are read that it pays to compute only those."""
    size = shown(given)
    return 2 * len(positions) <= size.rows * size.length
