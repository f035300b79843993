"""The text tower of a network of texts and items, as the BERT that transformers opens.

A folder of such a network holds its tower as `model.safetensors`, and everything about items in `cloze/items.safetensors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.arguments import complete
from cloze.interop.files import read_tensors
from cloze.interop.model import PortableModel

OWN_ITEMS = "cloze/items.safetensors"
_TOWERS = frozenset({"visual", "co_attention"})  # without items they compute what their text tower does, or nearly
_TEXT = ("embeddings.", "layers.")


def has_tower(part: str) -> bool:
    """Whether a network has a text tower that transformers can open as BERT."""
    return part in _TOWERS


def tower_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the text tower, of those of the whole network."""
    common = {name: arguments[name] for name in ("layers", "width", "heads", "feed_forward", "segments", "dropout", "initial")}
    norm, positions = {"post": {"epsilon": arguments["norm_epsilon"]}}, {"learned": {"max_length": arguments["max_length"]}}
    return complete({**common, "norm": norm, "positions": positions})


def text_tower(model: PortableModel) -> PortableModel:
    """The text tower alone, as a Transformer."""
    network = {name: tensor for name, tensor in model.network.items() if name.startswith(_TEXT)}
    return replace(model, part="transformer", arguments=tower_arguments(model.arguments), network=network)


def tower_remark(part: str) -> str:
    """The remark on a folder of which transformers opens only the text tower."""
    return (
        f"transformers has no class for the network {part!r}: it opens its text tower as BERT, which reads texts alone. What the "
        f"network makes of items is in {OWN_ITEMS}; cloze opens the whole folder."
    )


def outside_tower(model: PortableModel) -> dict[str, Tensor]:
    """The parameters of a network that its text tower lacks."""
    return {name: tensor for name, tensor in model.network.items() if not name.startswith(_TEXT)}


def whole_of(tower: PortableModel, folder: Path, part: str, arguments: Mapping[str, Any]) -> PortableModel:
    """The network of a folder that holds its text tower under transformers' names."""
    path = folder / OWN_ITEMS
    if not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; it holds what the network {part!r} makes of items.\n"
            "  The copy is incomplete: copy the whole folder again."
        )
    return replace(tower, part=part, arguments=complete(arguments, part), network={**tower.network, **read_tensors(path)})
