"""`change: [keep_layers: [0, 2, 4]]`: a shallower network that starts with some layers of a deeper one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cloze.bounds import Count, Depth, Natural, OptionalDepth
from cloze.changes.change import Change, Shape, Tensors, Transition
from cloze.errors import CheckpointError
from cloze.interop.arguments import complete, flat
from cloze.networks.blocks.computed import is_added
from cloze.networks.choices import Band, Rotary
from cloze.registry import lookup, parameters, register


@register("change", "keep_layers")
@dataclass(frozen=True)
class KeepLayers(Change):
    """Keep only these `layers` of the checkpoint, counted from 0, in ascending order, and the embeddings and heads.

    A number keeps that many: the first, the last and layers at equal distances between them. `half` keeps half of them in this
    way: of twelve 0, 2, 4, 7, 9 and 11, with which DistilBERT begins (Sanh et al., 2019; the authors' `extract_distilbert.py`).
    `every_other` keeps 0, 2, 4, …, as LayerDrop's authors cut (Fan et al., 2020; README of fairseq's examples/layerdrop).

    The layers of an encoder-decoder are counted through: those of the encoder first; a number or a word is for each of the two.
    The result is an ordinary network of that depth.
    """

    layers: tuple[Natural, ...] | Count | Literal["half", "every_other"]

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The checkpoint's arguments with the new number of layers."""
        stacks = stacks_of(shape.part, shape.arguments)
        layers = self._chosen(shape, stacks)
        changed, first = dict(shape.arguments), 0
        for name, count in stacks.items():
            changed[name] = sum(first <= layer < first + count for layer in layers)
            if not changed[name]:
                raise CheckpointError(
                    f"{shape.origin}: keep_layers: {_shown(layers)} keeps none of the layers {first} to {first + count - 1} "
                    f"({name} of {shape.part}). Keep at least one of them."
                )
            first += count
        full = complete(shape.arguments, shape.part)
        if flat(shape.arguments, shape.part).get("norm.depth_means"):
            raise CheckpointError(
                f"{shape.origin}: keep_layers: every layer of this network reads a mean over all below it (norm.depth_means), so "
                "none can be left out. Distil it into a network without such means."
            )
        for name in _counting(shape.part, OptionalDepth):  # so many layers, the lowest, have something of their own
            changed[name] = sum(layer < full[name] for layer in layers)
        if band_of(full) is not None:
            changed["attention"] = {**full["attention"], "band": _band_of_kept(layers, shape, full)}
        if not all(is_rotated(full, layer) for layer in range(sum(stacks.values()))):
            skip_every = _skipped_of_kept(layers, shape, full)
            changed["positions"] = {"rotary": {**full["positions"]["rotary"], "skip_every": skip_every}}
        return changed

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The kept layers' tensors under their new numbers."""
        origin, shape = transition.old_network.depth_groups()[1:], transition.old_shape
        changed = transition.new_network.depth_groups()[1:]
        stacks = stacks_of(shape.part, shape.arguments)
        depth, target_depth = (sum(counts.values()) for counts in (stacks, stacks_of(shape.part, transition.new_arguments)))
        layers = self._chosen(shape, stacks)
        if target_depth != len(layers):
            raise CheckpointError(
                f"{shape.origin}: keep_layers: {_shown(layers)} keeps {len(layers)} layers, and the recipe's network "
                f"has {target_depth}.\n  Write it with {len(layers)} layers, or leave it out and take over the checkpoint's."
            )
        before, after = (complete(arguments, shape.part) for arguments in (shape.arguments, transition.new_arguments))
        for number, layer in enumerate(layers):
            if is_banded(before, layer) != is_banded(after, number):
                sees = ("a band", "all tokens") if is_banded(before, layer) else ("all tokens", "a band")
                raise CheckpointError(
                    f"{shape.origin}: keep_layers: layer {layer} sees {sees[0]}, and layer {number} of the recipe's network "
                    f"would see {sees[1]}.\n"
                    "  Change attention.band of the network, or omit the network to take over the checkpoint's."
                )
            if is_rotated(before, layer) != is_rotated(after, number):
                raise CheckpointError(
                    f"{shape.origin}: keep_layers: of layer {layer} and layer {number} of the recipe's network, only one has "
                    "rotary positions.\n"
                    "  Change positions.rotary.skip_every of the network, or omit the network to take over the checkpoint's."
                )
        names, origin_names = _names(transition.new_network), _names(transition.old_network)
        inside = {origin_names[id(tensor)] for group in origin for tensor in _tensors(group).values()}
        tensors = {name: tensor for name, tensor in state.items() if name not in inside}
        for number, layer in enumerate([*layers, *range(depth, len(origin))]):  # a decoder may follow the layers
            old, new = _tensors(origin[layer]), _tensors(changed[number])
            if _shapes(old) != _shapes({name: t for name, t in new.items() if name in old or not is_added(name)}):
                raise CheckpointError(
                    f"{shape.origin}: keep_layers: layer {layer} cannot become layer {number}: it has other parts or widths.\n"
                    "  Keep layers that are built alike, and the first and the last one in their places."
                )
            tensors.update({names[id(new[name])]: state[origin_names[id(tensor)]] for name, tensor in old.items()})
        return tensors

    def _chosen(self, shape: Shape, stacks: Mapping[str, int]) -> Sequence[int]:
        """The layers that are kept of a network with these stacks."""
        depth = sum(stacks.values())
        if not depth:
            raise CheckpointError(
                f"{shape.origin}: keep_layers: {shape.part} has no stack of layers, so there are none to choose from.\n"
                "  Leave this out; weights of any network can be rounded (cloze compress --bits 8) or pruned (--magnitude 0.5)."
            )
        if isinstance(self.layers, (int, str)):
            return self._of_each(shape, stacks)
        layers = list(self.layers)
        if not layers or layers != sorted(set(layers)) or layers[-1] >= depth:
            raise CheckpointError(
                f"{shape.origin}: keep_layers: {_shown(layers)}; expected layers from 0 to {depth - 1}, in ascending order."
            )
        return layers

    def _of_each(self, shape: Shape, stacks: Mapping[str, int]) -> Sequence[int]:
        """A number of layers, half of them or every other one, of each stack; counted through."""
        layers: list[int] = []
        first = 0
        for name, count in stacks.items():
            choice = max(1, count // 2) if self.layers == "half" else self.layers
            if isinstance(choice, int) and choice > count:
                where = f" in its {name}" if len(stacks) > 1 else ""
                raise CheckpointError(
                    f"{shape.origin}: keep_layers: {choice} layers; expected at most the {count} of {shape.part}{where}."
                )
            indices = spread(count, choice) if isinstance(choice, int) else range(0, count, 2)
            layers += [first + layer for layer in indices]
            first += count
        return layers


def spread(count: int, number: int) -> list[int]:
    """So many of `count` layers: the first, the last, and those at equal distances between them; the first alone if it is one.

    >>> spread(12, 6), spread(5, 2), spread(4, 4), spread(3, 1)
    ([0, 2, 4, 7, 9, 11], [0, 4], [0, 1, 2, 3], [0])
    """
    return [(2 * index * (count - 1) + number - 1) // (2 * max(1, number - 1)) for index in range(number)]


def _band_of_kept(layers: Sequence[int], shape: Shape, full: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The band with which every kept layer sees what it saw; None if all of them see all tokens."""
    bands = [is_banded(full, layer) for layer in layers]
    if not any(bands):
        return None
    for first in dict.fromkeys((None, bands.index(True) or None)):
        for every in (None, *range(2, len(bands) + 1)):
            band = {**full["attention"]["band"], "dense_every": every, "dense_first": first}
            if bands == [is_banded({"attention": {"band": band}}, number) for number in range(len(bands))]:
                return band
    dense = [layer for layer, banded in zip(layers, bands, strict=True) if not banded]
    raise CheckpointError(
        f"{shape.origin}: keep_layers: {_shown(layers)}: of these layers, {_shown(dense)} see all tokens, the others a\n"
        "  band. In a network, layer 0 and every nth layer see all tokens (attention.band.dense_every), or the first layers\n"
        "  (dense_first), or no layer does.\n"
        f"  Keep layers in such an order, for example {_shown(range(len(bands)))}."
    )


def _skipped_of_kept(layers: Sequence[int], shape: Shape, full: Mapping[str, Any]) -> int | None:
    """Every how many layers one has no rotary positions, if the kept layers have them as before; None if all have them."""
    rotated, rotary = [is_rotated(full, layer) for layer in layers], full["positions"]["rotary"]
    for every in (None, *range(1, len(rotated) + 1)):
        positions = {"positions": {"rotary": {**rotary, "skip_every": every}}}
        if rotated == [is_rotated(positions, number) for number in range(len(rotated))]:
            return every
    raise CheckpointError(
        f"{shape.origin}: keep_layers: {_shown(layers)}: one layer in {rotary['skip_every']} of this network has no rotary\n"
        "  positions. Among the kept layers, every nth must have none, and all others must have them.\n"
        f"  For example: {_shown(range(len(layers)))}."
    )


def stacks_of(part: str, arguments: Mapping[str, Any]) -> dict[str, int]:
    """How many layers a network has, by the argument that says so, in the order of its depth groups."""
    full = complete(arguments, part)
    return {name: int(full[name]) for name in _counting(part, Depth)}


def band_of(full: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The band of a network with these complete arguments; None if its attention has none."""
    return (full.get("attention") or {}).get("band")


def is_banded(full: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer of a network with these complete arguments sees a band and not all tokens."""
    band = band_of(full)
    return band is not None and Band(**band).limits(layer)


def is_rotated(full: Mapping[str, Any], layer: int) -> bool:
    """Whether a layer of a network with these complete arguments has rotary positions, if other layers have."""
    positions = full.get("positions")
    rotary = positions.get("rotary") if isinstance(positions, Mapping) else None
    return rotary is None or Rotary(skip_every=rotary.get("skip_every")).rotates_in(layer)


def _tensors(group: nn.Module) -> dict[str, Tensor]:
    return group.state_dict(keep_vars=True)


def _shapes(tensors: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _names(network: nn.Module) -> dict[int, str]:
    """The names of a network's tensors in its state, by identity."""
    return {id(tensor): name for name, tensor in _tensors(network).items()}


def _counting(part: str, kind: Any) -> list[str]:
    """The arguments of a network whose annotation says that they count layers: `Depth` or `OptionalDepth`."""
    signature = parameters(lookup("network", part))
    return [name for name, parameter in signature.items() if parameter.annotation in (kind, kind | None)]


def _shown(layers: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, layers)) + "]"
