"""Parts that networks share: `tie:` and `tie_detached:` of a recipe."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cloze.errors import RecipeError, propose
from cloze.networks.blocks.computed import compute_weight, own_weight


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


class DetachedSum(nn.Module):
    """The weight of a table (V, D), which is a difference, plus that of another table, which gets no gradient."""

    def __init__(self, source: nn.Embedding) -> None:
        super().__init__()
        self._source = (source,)  # of another network, which stores it

    def forward(self, weight: Tensor) -> Tensor:
        """(V, D) to (V, D)."""
        return weight + self._source[0].weight.detach().to(weight.dtype)


def tie_detached(networks: Mapping[str, nn.Module], groups: Sequence[Sequence[str]]) -> None:
    """Gradient-disentangled sharing of tables: each after the first of its group is the first one, without a gradient to it, plus
    a difference of its own, which begins at zero (DeBERTaV3; He et al., 2023, §3.3).

    In the state of a step, the table's own weight is the difference; folders hold the sum (`with_sums`).

    Raises:
        RecipeError: a path that does not exist or is no table of vectors, or shapes that differ.
    """
    for first, *paths in groups:
        source = _table(networks, first)
        for path in paths:
            table = _table(networks, path)
            if table.weight.shape != source.weight.shape:
                raise RecipeError(
                    f"tie_detached: {first} and {path}: the tables are {tuple(source.weight.shape)} and "
                    f"{tuple(table.weight.shape)}. Tied tables must have equal shapes."
                )
            nn.init.zeros_(table.weight)
            compute_weight(table, "tie_detached", DetachedSum(source))


def with_sums(
    network: Mapping[str, Tensor], name: str, state: Mapping[str, Tensor], groups: Sequence[Sequence[str]]
) -> dict[str, Tensor]:
    """The tensors of the network `name` of a step's `state`, with sums in place of the differences of `tie_detached`."""
    sums = {
        inner: state[f"networks.{first}.weight"] for first, *paths in groups for path in paths
        for owner, _, inner in [f"{path}.weight".partition(".")] if owner == name
    }
    return {key: tensor + sums[key] if key in sums else tensor for key, tensor in network.items()}


@torch.no_grad()
def take_off_sums(networks: Any, groups: Sequence[Sequence[str]], loaded: Collection[str]) -> None:
    """The reverse of `with_sums` in those of the `networks`, by name, that were `loaded` from folders; call it when all are."""
    for first, *paths in groups:
        for path in paths:
            if path.partition(".")[0] in loaded:
                own_weight(_table(networks, path)).sub_(_table(networks, first).weight)


def _table(networks: Mapping[str, nn.Module], path: str) -> nn.Embedding:
    table = _find(networks, path, "tie_detached")
    if not isinstance(table, nn.Embedding):
        example = f"{path.partition('.')[0]}.embeddings.tokens"
        raise RecipeError(f"tie_detached: {path} is not a table of vectors. Expected one, such as {example}.")
    return table


def _find(networks: Mapping[str, nn.Module], path: str, key: str = "tie") -> nn.Module | nn.Parameter:
    name, _, inner = path.partition(".")
    if name not in networks:
        raise RecipeError(f"{key}: {path}: unknown network {name!r}. {propose(name, networks)}")
    node: Any = networks[name]
    for part in inner.split("."):
        inside = dict(node.named_children()) | dict(node.named_parameters(recurse=False))
        if part not in inside:
            raise RecipeError(f"{key}: {path}: no part {part!r} in it. {propose(part, inside)}")
        node = inside[part]
    assert isinstance(node, (nn.Module, nn.Parameter))
    return node


def _shapes(part: nn.Module | nn.Parameter) -> dict[str, tuple[int, ...]]:
    if isinstance(part, nn.Module):
        return {name: tuple(parameter.shape) for name, parameter in part.named_parameters()}
    return {"": tuple(part.shape)}
