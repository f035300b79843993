"""Gates of heads: which a network has, how to close some, and a gate for every head of every example, for gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from cloze.changes.compressing.attentions import KINDS, AttentionName
from cloze.errors import UserError


class HeadKind(NamedTuple):
    """The heads of one kind of attention: the argument of the network that gates them, their name, layers and heads."""

    argument: str
    name: str
    layers: int
    heads: int


def require_attention(network: Any) -> None:
    """Raise a `UserError` if a network has no attention."""
    if "attention" not in network.gives:
        raise UserError(
            f"{type(network).__name__} has no attention, and therefore no heads.\n"
            "  Other probes: geometry, layers, edges, distance and static. Other changes: cloze compress --magnitude or --bits."
        )


def head_kinds(network: Any) -> list[HeadKind]:
    """The kinds of heads that a network has; a `UserError` if it has no attention."""
    require_attention(network)
    if network.writes is None:
        return [HeadKind(KINDS["attention"].gates, "attention", len(network.layers), network.layers[0].attention.heads)]
    encoder, decoder = network.encoder.layers, network.decoder.layers
    sizes: dict[AttentionName, tuple[int, int]] = {
        "attention": (len(encoder), encoder[0].attention.heads), "decoder": (len(decoder), decoder[0].attention.heads),
        "crossing": (len(decoder), decoder[0].crossing.heads),
    }
    return [HeadKind(KINDS[kind].gates, KINDS[kind].title, *size) for kind, size in sizes.items()]


@contextmanager
def _gated(network: Any, gates_of: Callable[[Mapping[str, Any]], Mapping[str, Tensor]]) -> Iterator[None]:
    """Every call of the network in this context also gets the gates that `gates_of` makes for its other arguments."""
    handle = network.register_forward_pre_hook(
        lambda module, args, fields: (args, {**fields, **gates_of(fields)}), with_kwargs=True
    )
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def closed(network: Any, gates: Mapping[str, Tensor]) -> Iterator[None]:
    """Every call of the network in this context gets these gates, by argument; (N, H) with zeros where a head is closed."""
    like = next(network.parameters())
    moved = {argument: gate.to(like) for argument, gate in gates.items()}
    with _gated(network, lambda fields: moved):
        yield


@contextmanager
def each_gate(
    network: Any, kinds: Sequence[HeadKind], values: Mapping[str, Tensor] | None = None
) -> Iterator[list[dict[str, Tensor]]]:
    """Every call of the network in this context gets gates (N, B, H) of its own, which require gradients; the list collects them.

    `values` are the values of the gates (N, H) by argument; None: all are 1.
    """
    gates: list[dict[str, Tensor]] = []
    like = next(network.parameters())

    def fresh(fields: Mapping[str, Any]) -> Mapping[str, Tensor]:
        gates_of_call = {}
        for kind in kinds:
            gate = like.new_ones(kind.layers, len(fields["tokens"]), kind.heads)
            if values is not None:
                gate *= values[kind.argument].to(like)[:, None]
            gates_of_call[kind.argument] = gate.requires_grad_()
        gates.append(gates_of_call)
        return gates_of_call

    with _gated(network, fresh):
        yield gates
