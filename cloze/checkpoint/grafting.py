"""Whether a checkpoint fits a network: what is refused, what the network has in addition, and the line that says so.

`load_weights.py` calls it. A network with further modules, such as `zen`, starts from a plain one: it names the parts that it
extends (`Network.grafts`) and the modules that those lack (`Network.fresh`), which keep their random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.arguments import complete, derived, flat
from cloze.networks.blocks.computed import is_added

Tensors = Mapping[str, Tensor]

#: What a network computes from its weights, where their shapes do not tell.
_FORM = ("heads", "norm", "positions", "feed_forward.activation")
#: The sizes that `--set` gives a network so that a checkpoint fits, in the order in which they are told.
_SIZES = ("layers", "width", "heads", "feed_forward.inner", "segments", "max_length", "positions.max_length")
_SEGMENTS = "embeddings.segments.weight"


class Side(NamedTuple):
    """A network of a checkpoint or of a recipe: its part and its arguments."""

    part: str
    arguments: Mapping[str, Any]

    @property
    def flat(self) -> Mapping[str, Any]:
        """The arguments by their paths, with derived values."""
        return derived(flat(complete(self.arguments, self.part), self.part))


def fresh_parts(network: Any, theirs: Tensors) -> dict[str, int]:
    """The modules of a network that a checkpoint lacks altogether and may lack, and segments beyond those of the checkpoint, with
    their numbers of parameters."""
    counts = {
        name.removesuffix(".weight"): tensor.numel() - theirs[name].numel()
        for name, tensor in _with_more_segments(network, theirs).items()
    }
    for prefix in network.fresh:
        tensors = [tensor for name, tensor in network.state_dict().items() if _inside(name, prefix)]
        if tensors and not any(_inside(name, prefix) for name in theirs):
            counts[prefix] = sum(tensor.numel() for tensor in tensors)
    return counts


def completed(network: Any, theirs: Tensors) -> dict[str, Tensor]:
    """The tensors of a checkpoint, and the network's own where it has more: all of `fresh_parts`, and what a change added."""
    prefixes = tuple(fresh_parts(network, theirs))
    added = {
        name: tensor for name, tensor in network.state_dict().items()
        if is_added(name) or any(_inside(name, prefix) for prefix in prefixes)
    }
    follow = {name: tensor for name, tensor in network.begun(theirs).items() if name in added}
    return {**added, **follow, **theirs, **_with_more_segments(network, theirs)}


def _with_more_segments(network: Any, theirs: Tensors) -> dict[str, Tensor]:
    """Tables of segments that have more rows than the checkpoint's, by name: its rows, then the network's own.

    As in the code of VL-BERT's authors (jackroos/VL-BERT, common/visual_linguistic_bert.py), which adds a segment for regions.
    """
    tables = {}
    for name, table in network.state_dict().items():
        if name.endswith(_SEGMENTS) and name in theirs:
            rows, width = theirs[name].shape
            if len(table) > rows and table.shape[1] == width:
                tables[name] = torch.cat([theirs[name].to(table), table[rows:]])
    return tables


def require_fit(
    network: Any, here: Side, theirs: Tensors, there: Side, *, folder: Path, label: str, recipe: str, changed: bool
) -> None:
    """Raise a `CheckpointError` if the tensors of a checkpoint, `theirs`, are not those of the network.

    `changed`: changes of the recipe have made the tensors fit, so that the arguments may differ.
    """
    start = f"{folder}: does not fit the network {label!r} of {recipe}: "
    if there.part not in {here.part, *network.grafts} and not changed:
        expected = ", ".join(sorted({here.part, *network.grafts}))
        raise CheckpointError(
            f"{start}it holds a network {there.part!r}, expected {expected}.\n  {own_recipe(folder)}"
        )

    def way() -> str:
        return _of_documents(folder) if network.of_documents else _way_out(folder, label, here, there)

    tensors = network.state_dict()
    wrong = [name for name in {**tensors, **theirs} if shape(name, tensors) != shape(name, theirs)]
    if wrong:
        raise CheckpointError(
            f"{start}{wrong[0]} is {shape(wrong[0], theirs)} in the checkpoint and {shape(wrong[0], tensors)} in the recipe.\n"
            f"  {way()}"
        )
    if changed:
        return
    old, new = there.flat, here.flat
    for name in _FORM:
        if name in old and name in new and old[name] != new[name]:
            raise CheckpointError(
                f"{start}{name} is {old[name]} in the checkpoint and {new[name]} in the recipe.\n"
                f"  {way()}"
            )


def report(folder: Path, parts: Mapping[str, int]) -> str:
    """The line that says what starts from random weights, largest first."""
    listed = ", ".join(f"{name} ({count:,})" for name, count in sorted(parts.items(), key=lambda item: -item[1]))
    return f"{folder}: has no weights for {sum(parts.values()):,} parameters, which start fresh: {listed}."


def _of_documents(folder: Path) -> str:
    """What to do with a checkpoint whose rows belong to the documents of its corpus."""
    return (
        "Its vectors belong to the documents that it was trained on; other documents cannot go on with them.\n"
        f"  Vectors of new texts: cloze embed {quote(str(folder))} --file TEXTS --out VECTORS.npy\n"
        "  To train on all of the text again: leave --init out."
    )


def own_recipe(folder: Path) -> str:
    """How to continue a checkpoint in its own shape."""
    quoted = quote(str(folder))
    if (folder / "cloze" / "recipe.yaml").is_file():
        return f"To continue it with its own recipe: cloze pretrain {quoted} --init {quoted} --corpus TEXT --out CONTINUED"
    return (
        f"To continue it in its own shape: cloze import {quoted} --out IMPORTED\n"
        "  then: cloze pretrain IMPORTED --init IMPORTED --corpus TEXT --out CONTINUED"
    )


def _way_out(folder: Path, label: str, here: Side, there: Side) -> str:
    """For a larger network, its arguments that make the checkpoint fit; else the checkpoint's own recipe."""
    old, new = there.flat, here.flat
    old = {**old, **({"max_length": old["positions.max_length"]} if "positions.max_length" in old else {})}
    differ = [name for name in _SIZES if name in old and name in new and old[name] != new[name]]
    if here.part == there.part or not differ:
        return own_recipe(folder)
    network = "network" if label == "main" else f"networks.{label}"
    return "To give the network the sizes of the checkpoint: " + " ".join(
        f"--set {network}.{name}={old[name]}" for name in differ
    )


def shape(name: str, state: Tensors) -> str:
    """The shape of a tensor, in words if it is not there."""
    return str(tuple(state[name].shape)) if name in state else "missing"


def _inside(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")

