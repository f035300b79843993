"""What changes share: the linear maps that they act on (`on: [query, value, outer]`), freezing, rows in front of every text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import is_added
from cloze.networks.blocks.projections import STACKED


def chosen_maps(
    network: Any, on: Sequence[str] | None, *, of: str, tables: Sequence[nn.Embedding] | None = None
) -> list[tuple[nn.Linear, slice]]:
    """The linear maps above the embeddings that `on` names (None: all), each with its rows.

    A name is the end of a map's name (`out`, `attention.out`) or a part of stacked projections (`query`). A map that several
    layers share is chosen once. A change that can also act on tables of vectors passes the `tables` that it changes; a network of
    tables needs no maps then. `CheckpointError`, naming the change `of`: a name that no map has; nothing to change.
    """
    below = {id(module) for module in network.depth_groups()[0].modules()}
    maps = {
        name: module for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and id(module) not in below and not is_added(name) and name not in network.unread
    }
    kind = type(network).__name__
    if not maps and (on is not None or not tables):
        raise CheckpointError(f"{of}: {kind} has no linear maps above its embeddings.{_other_way(network, on, of, tables)}")
    if on is None:
        return [(module, slice(None)) for module in maps.values()]
    chosen = []
    for target in on:
        matches = [
            (module, rows) for name, module in maps.items()
            for rows in [rows_of(name, module.out_features, target)] if rows is not None
        ]
        if not matches:
            names = {name.rpartition(".")[2] for name in maps}
            parts = [part for name in names for part in STACKED.get(name, ())]
            raise CheckpointError(
                f"{of}: on: {kind} has no linear map {target!r}. Its maps: {', '.join(sorted({*names, *parts}))}."
            )
        chosen += matches
    return chosen


def _other_way(network: Any, on: Sequence[str] | None, of: str, tables: Sequence[nn.Embedding] | None) -> str:
    """What can be done instead of changing maps that a network does not have."""
    if tables is None or not network.compressible:
        return " Leave the change out."
    if on is not None:
        return f" Leave `on` of {of} out, and its tables of vectors are changed."
    return f" It has tables of vectors: write `{of}: {{embeddings: true}}`, or cloze compress … --embeddings."


def whole_maps(
    network: Any, on: Sequence[str] | None, *, of: str, tables: Sequence[nn.Embedding] | None = None
) -> list[tuple[str, nn.Linear]]:
    """As `chosen_maps`, each with its name; `CheckpointError` if `on` names a part of stacked projections."""
    chosen = chosen_maps(network, on, of=of, tables=tables)
    if any(rows != slice(None) for _, rows in chosen):
        raise CheckpointError(f"{of}: on: names whole maps, not parts of stacked projections: write `projections`.")
    names = {id(module): name for name, module in network.named_modules()}
    return [(names[id(linear)], linear) for linear, _ in chosen]


def parts_of(network: nn.Module, linear: nn.Linear) -> list[slice]:
    """The rows of each matrix of the published models that a linear map of a network stacks; all rows if it is one of them."""
    name = next(name for name, module in network.named_modules() if module is linear).rpartition(".")[2]
    count = len(STACKED.get(name, ("itself",)))
    height = linear.out_features // count
    return [slice(part * height, (part + 1) * height) for part in range(count)]


def freeze(network: nn.Module) -> None:
    """Freeze all of a network but what changes have added."""
    for name, parameter in network.named_parameters():
        if not is_added(name):
            parameter.requires_grad_(False)


def put_in_front(network: Any, outside: nn.Module, tokens: int, *, of: str) -> None:
    """Freeze a network and put `outside` around it, which takes so many `tokens` of the length that the network can read.

    `CheckpointError`, naming the change `of`, if no room is left for a text.
    """
    limit = network.max_length
    if limit is not None and limit <= tokens:
        raise CheckpointError(f"{of}: {tokens} tokens, but the network reads {limit}. Use fewer.")
    freeze(network)
    network.add_network_hook(outside)
    network.max_length = None if limit is None else limit - tokens


def rows_of(name: str, height: int, target: str) -> slice | None:
    """The rows of a map that are meant by `target`, None if it is not; `height` is their number."""
    if f".{name}".endswith(f".{target}"):
        return slice(None)
    parts = STACKED.get(name.rpartition(".")[2], ())
    if target not in parts:
        return None
    size = height // len(parts)
    return slice(parts.index(target) * size, (parts.index(target) + 1) * size)
