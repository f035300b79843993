"""How the fields of a batch reach a network: as keyword arguments; fields with a set become one mapping, those of a further
sequence one `TokenSequence`, and `visible` becomes a part of the order."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import Tensor

from cloze import fields
from cloze.batch import Batch
from cloze.networks.blocks.visibility import Restricted
from cloze.networks.network import TokenSequence

_TARGETS = ("targets", "values", "positions", "weights")


def seen_by(network: Any, batch: Batch, view: str) -> Batch:
    """The fields that a pass of a network on a view reads: those of the view, and under full names (`decoder.tokens`) those of
    the further sequences that the network takes. The targets of a sequence that it writes are the targets of the pass.
    """
    seen = batch.view(view)
    further = {other for other, _, _ in map(fields.split, network.takes)} - {"main"}
    for other in further:
        further_fields = batch.view(fields.join(view, other))
        seen = Batch({**seen, **{f"{other}.{name}": value for name, value in further_fields.items()}}, checked=True)
        if network.writes is not None:
            targets = {name: value for name, value in further_fields.items() if fields.split(name).field in _TARGETS}
            seen = Batch({**seen, **targets}, checked=True)
    return seen


def routed(network: Any, seen: Mapping[str, Tensor], order: str) -> dict[str, Any]:
    """The fields that a network takes, by keyword; `order` holds for all rows unless the batch has an `order` field."""
    arguments: dict[str, Any] = {}
    for name in network.takes & seen.keys():
        view, field, chosen = fields.split(name)
        if view != "main":
            arguments.setdefault(view, {})[field] = seen[name]
        elif chosen:
            arguments.setdefault(field, {})[chosen] = seen[name]
        else:
            arguments[name] = seen[name]
    for view in {view for view, _, _ in map(fields.split, network.takes)} & arguments.keys():
        arguments[view] = TokenSequence(**arguments[view])
    if "order" in network.takes:
        arguments.setdefault("order", order)
    if "visible" in arguments:
        arguments["order"] = Restricted(arguments["order"], arguments.pop("visible"))
    return arguments


def takes_positions(network: Any) -> bool:
    """Whether a network has the argument `positions`, and then computes its last state only there."""
    return "positions" in signature(network.forward).parameters


def worth_selecting(positions: Tensor, inputs: Mapping[str, Tensor]) -> bool:
    """Whether so few positions are read that it pays to compute only those."""
    name = fields.sequence(inputs)
    cells = 0 if name is None else inputs[name].shape[0] * inputs[name].shape[1]
    return 2 * len(positions) <= cells
