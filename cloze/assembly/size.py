"""`--size tiny|mini|small|medium|base|large`: rescale a recipe's networks and nothing else.

The exported network takes the numbers of the size from its builder's `sizes`; what follows from the width (`inner`,
`embedding_width`, but for a floor) keeps its ratio to it. Every other network keeps the ratio of its own numbers to those that
the exported network had before, with a width that is a multiple of the head width and at least one head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.assembly import parts
from cloze.assembly.document import Node, from_data
from cloze.assembly.recipe import PartSpec, Recipe
from cloze.errors import RecipeError, nearest

HEAD = 64
WITH_WIDTH = ("inner", "embedding_width")
#: Narrower tables of tokens can hardly tell them apart: ALBERT-xxlarge's ratio would leave four numbers at width 128.
NARROWEST = 32


def rescale(root: Node, recipe: Recipe, size: str, *, kept: frozenset[str] = frozenset()) -> None:
    """Write the numbers of `size` into the networks of an expanded recipe; `recipe` is what it reads as before.

    The networks in `kept` have the size of a checkpoint and keep it.
    """
    exported = recipe.exported
    if exported.part is None or exported.name in kept:
        raise RecipeError(f"--size {size}: network {exported.name!r} comes from a checkpoint, so its size is fixed.")
    builder = parts.builder_of("network", exported.part.name)
    sizes: Mapping[str, Mapping[str, int]] = getattr(builder, "sizes", {})
    if size not in sizes:
        raise RecipeError(f"--size {size}: {exported.part.name} has no such size. {nearest(size, sizes)}")
    for name, network in recipe.networks.items():
        if network.part is None or name in kept:
            continue
        own = network.part.arguments
        numbers = (
            exported_numbers(own, sizes[size]) if name == recipe.export
            else other_numbers(own, exported.part.arguments, sizes[size])
        )
        inner = root.value["networks"].value[name].value[network.part.name]
        for key, number in numbers.items():
            inner.put(key, Node(number, inner.place(key)))
        _rescale_nested(inner, own, size)


def _rescale_nested(inner: Node, own: Mapping[str, Any], size: str) -> None:
    """Parts of a network that state sizes of their own, such as what reads characters, take the numbers of the size."""
    for key, part in own.items():
        if not isinstance(part, PartSpec):
            continue
        sizes: Mapping[str, Mapping[str, Any]] = getattr(parts.builder_of(part.kind, part.name), "sizes", {})
        for name, value in sizes.get(size, {}).items():
            node = inner.value[key].value[part.name]
            node.put(name, from_data(value, node.place(name)))


def exported_numbers(own: Mapping[str, Any], size: Mapping[str, int]) -> dict[str, int]:
    """The size's numbers, and what follows from the width in the same ratio as before."""
    numbers = {key: number for key, number in size.items() if key in own}
    for key in WITH_WIDTH:
        if own.get(key) is not None and "width" in numbers:
            numbers[key] = max(1, round(own[key] * numbers["width"] / own["width"]))
    if "embedding_width" in numbers:
        numbers["embedding_width"] = max(numbers["embedding_width"], min(NARROWEST, own["embedding_width"]))
    return numbers


def other_numbers(own: Mapping[str, Any], exported: Mapping[str, Any], size: Mapping[str, int]) -> dict[str, int]:
    """A smaller or larger companion of the exported network, scaled by the same ratios."""
    numbers: dict[str, int] = {}
    if own.get("layers") and exported.get("layers") and "layers" in size:
        numbers["layers"] = max(1, round(own["layers"] * size["layers"] / exported["layers"]))
    if not (own.get("width") and exported.get("width") and "width" in size):
        return numbers
    ratio = size["width"] / exported["width"]
    head = own["width"] // own["heads"] if own.get("heads") else HEAD
    numbers["width"] = head * max(1, round(own["width"] * ratio / head))
    if own.get("heads"):
        numbers["heads"] = numbers["width"] // head
    if own.get("inner") is not None:
        numbers["inner"] = max(1, round(own["inner"] * numbers["width"] / own["width"]))
    if own.get("embedding_width") is not None:
        numbers["embedding_width"] = max(1, round(own["embedding_width"] * ratio))
    return numbers
