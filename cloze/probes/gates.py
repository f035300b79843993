"""Gates of heads: which a network has, closing some, and one for every head of every example, to differentiate by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cloze.errors import UserError


class Family(NamedTuple):
    """The heads of one kind of attention: the argument of the network that gates them, their name, layers and heads."""

    argument: str
    name: str
    layers: int
    heads: int


def families(network: Any) -> list[Family]:
    """The kinds of heads that a network has; a `UserError` if it has no attention."""
    if "attention" not in network.gives:
        raise UserError(f"{type(network).__name__} has no attention, hence no heads.")
    if network.writes is None:
        return [Family("gates", "attention", len(network.layers), network.layers[0].attention.heads)]
    encoder, decoder = network.encoder.layers, network.decoder.layers
    return [
        Family("gates", "encoder", len(encoder), encoder[0].attention.heads),
        Family("decoder_gates", "decoder", len(decoder), decoder[0].attention.heads),
        Family("crossing_gates", "decoder to encoder", len(decoder), decoder[0].crossing.heads),
    ]


@contextmanager
def closed(network: Any, gates: Mapping[str, Tensor]) -> Iterator[None]:
    """Every call of the network inside gets these gates, by argument; (N, H) with zeros where a head is closed."""

    def give(module: Any, args: Any, fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**fields, **{name: gate.to(like) for name, gate in gates.items()}}

    like = next(network.parameters())
    handle = network.register_forward_pre_hook(give, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def each_gate(network: Any, kinds: Sequence[Family]) -> Iterator[list[dict[str, Tensor]]]:
    """Every call of the network inside gets gates of ones (N, B, H) of its own, which need a gradient; the list collects them."""
    made: list[dict[str, Tensor]] = []

    def give(module: Any, args: Any, fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        tokens = fields["tokens"]
        dtype = next(network.parameters()).dtype
        made.append({
            kind.argument: torch.ones(
                kind.layers, len(tokens), kind.heads, dtype=dtype, device=tokens.device, requires_grad=True
            ) for kind in kinds
        })  # fmt: skip
        return args, {**fields, **made[-1]}

    handle = network.register_forward_pre_hook(give, with_kwargs=True)
    try:
        yield made
    finally:
        handle.remove()
