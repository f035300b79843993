"""Parts that networks share: `tie:` of a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from cloze.errors import RecipeError, propose


def tie(networks: Mapping[str, nn.Module], groups: Sequence[Sequence[str]]) -> None:
    """Share modules or parameters: `[["generator.embeddings", "discriminator.embeddings"]]`. The first one is kept.

    Call it before heads are built, so that a head tied to a table holds the table that is kept.

    Raises:
        RecipeError: a path that does not exist, or shapes that differ.
    """
    for group in groups:
        first = _find(networks, group[0])
        for path in group[1:]:
            other, where = _find(networks, path), f"tie: {group[0]} and {path}"
            shapes, other_shapes = _shapes(first), _shapes(other)
            if shapes != other_shapes:
                name = next(n for n in {**shapes, **other_shapes} if shapes.get(n) != other_shapes.get(n))
                raise RecipeError(
                    f"{where}: {name or 'the parameter'} has the shape {shapes.get(name)} in the first and "
                    f"{other_shapes.get(name)} in the second. Tied parts must have equal shapes."
                )
            network, _, inner = path.partition(".")
            parent, _, last = inner.rpartition(".")
            setattr(networks[network].get_submodule(parent), last, first)


def _find(networks: Mapping[str, nn.Module], path: str) -> nn.Module | nn.Parameter:
    name, _, inner = path.partition(".")
    if name not in networks:
        raise RecipeError(f"tie: {path}: unknown network {name!r}. {propose(name, networks)}")
    node: Any = networks[name]
    for part in inner.split("."):
        inside = dict(node.named_children()) | dict(node.named_parameters(recurse=False))
        if part not in inside:
            raise RecipeError(f"tie: {path}: no part {part!r} in it. {propose(part, inside)}")
        node = inside[part]
    assert isinstance(node, (nn.Module, nn.Parameter))
    return node


def _shapes(part: nn.Module | nn.Parameter) -> dict[str, tuple[int, ...]]:
    if isinstance(part, nn.Module):
        return {name: tuple(parameter.shape) for name, parameter in part.named_parameters()}
    return {"": tuple(part.shape)}
