"""`--size tiny|mini|small|medium|base|large`: rescale a recipe's networks and nothing else.

The exported network takes the numbers of the size from its builder's `sizes`. `inner` and the width of the embeddings keep their
ratio to the width, with a minimum for the embeddings. The number of key-value heads keeps its ratio to the number of heads as
nearly as divisibility allows. Every other network keeps its ratios to the exported network; its width is a multiple of the head
width, and it has at least one head.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.document import Node, from_data
from cloze.errors import RecipeError, propose
from cloze.recipe import parts, paths
from cloze.recipe.recipe import PartSpec, Recipe

HEAD_WIDTH = 64
WITH_WIDTH = ("inner", "feed_forward.inner", "embedding_width", "embedding.width")
#: In a narrower table, tokens can hardly be distinguished: ALBERT-xxlarge's ratio would leave four numbers at width 128.
NARROWEST = 32
KEY_VALUE_HEADS = "attention.key_value_heads"
#: What a path ends with that holds the number of a layer, which keeps its ratio to the number of layers.
NUMBER_OF_LAYER = "after_layer"
_NARROW = frozenset({"embedding_width", "embedding.width"})


def rescale(root: Node, recipe: Recipe, size: str, *, fixed_networks: frozenset[str] = frozenset()) -> None:
    """Write the numbers of `size` into the networks of an expanded recipe; `recipe` is the same recipe, as read
    before rescaling.

    The networks in `fixed_networks` have the size of a checkpoint and keep it.
    """
    exported = recipe.exported
    if exported.part is None or exported.name in fixed_networks:
        raise RecipeError(f"--size {size}: network {exported.name!r} comes from a checkpoint, so its size is fixed.")
    sizes: Mapping[str, Mapping[str, int]] = parts.class_of("network", exported.part.name).sizes
    if size not in sizes:
        raise RecipeError(f"--size {size}: {exported.part.name} has no such size. {propose(size, sizes)}")
    for name, network in recipe.networks.items():
        if network.part is None or network.average is not None or name in fixed_networks:
            continue
        arguments = network.part.arguments
        numbers = (
            exported_numbers(arguments, sizes[size]) if name == recipe.export
            else other_numbers(arguments, exported.part.arguments, sizes[size])
        )
        inner = root.value["networks"].value[name].value[network.part.name]
        for key, number in numbers.items():
            location = paths.locate_for_setting(inner, key)
            location.container.put(location.key, Node(number, location.container.place(location.key)))
        _rescale_nested(inner, arguments, size)


def _rescale_nested(inner: Node, arguments: Mapping[str, Any], size: str) -> None:
    """Parts of a network with sizes of their own, such as a reader of characters, take the numbers of the size."""
    for key, part in arguments.items():
        if not isinstance(part, PartSpec):
            continue
        sizes: Mapping[str, Mapping[str, Any]] = vars(parts.class_of(part.kind, part.name)).get("sizes", {})
        for name, value in sizes.get(size, {}).items():
            node = inner.value[key].value[part.name]
            node.put(name, from_data(value, node.place(name)))


def flat(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their paths, those of parts and sections too: `feed_forward.inner`."""
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, PartSpec) and "sizes" in vars(parts.class_of(value.kind, value.name)):
            continue  # it has sizes of its own
        inner = value.arguments if isinstance(value, PartSpec) else value if isinstance(value, Mapping) else None
        values |= {name: value} if inner is None else {f"{name}.{key}": number for key, number in flat(inner).items()}
    return values


def exported_numbers(arguments: Mapping[str, Any], size: Mapping[str, int]) -> dict[str, int]:
    """The size's numbers, and the numbers that keep their ratio to the width, by their paths."""
    values = flat(arguments)
    numbers = {key: number for key, number in size.items() if key in values}
    if "layers" in numbers:
        placed = [key for key in values if key.endswith(f".{NUMBER_OF_LAYER}")]
        numbers |= {key: values[key] * numbers["layers"] // values["layers"] for key in placed}
    for key in WITH_WIDTH:
        if values.get(key) is not None and "width" in numbers:
            numbers[key] = max(1, round(values[key] * numbers["width"] / values["width"]))
    for key in _NARROW & numbers.keys():
        numbers[key] = max(numbers[key], min(NARROWEST, values[key]))
    return {**numbers, **_shared_heads(values, numbers)}


def _shared_heads(values: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, int]:
    """The heads of keys and values for another number of heads: the largest divisor of it that is not above the old ratio."""
    fewer, heads = values.get(KEY_VALUE_HEADS), numbers.get("heads")
    if fewer is None or heads is None:
        return {}
    most = max(1, heads * fewer // values["heads"])
    return {KEY_VALUE_HEADS: next(number for number in range(most, 0, -1) if heads % number == 0)}


def other_numbers(arguments: Mapping[str, Any], exported: Mapping[str, Any], size: Mapping[str, int]) -> dict[str, int]:
    """Another network, smaller or larger than the exported one, scaled by the same ratios."""
    values, numbers = flat(arguments), dict[str, int]()
    if values.get("layers") and exported.get("layers") and "layers" in size:
        numbers["layers"] = max(1, round(values["layers"] * size["layers"] / exported["layers"]))
    if not (values.get("width") and exported.get("width") and "width" in size):
        return numbers
    ratio = size["width"] / exported["width"]
    head = values["width"] // values["heads"] if values.get("heads") else HEAD_WIDTH
    numbers["width"] = head * max(1, round(values["width"] * ratio / head))
    if values.get("heads"):
        numbers["heads"] = numbers["width"] // head
    for key in WITH_WIDTH:
        if values.get(key) is not None:
            numbers[key] = max(1, round(values[key] * (ratio if key in _NARROW else numbers["width"] / values["width"])))
    return {**numbers, **_shared_heads(values, numbers)}
