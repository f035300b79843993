"""Whether the network that a recipe trains can take a change, before it is trained. `cloze compare` calls this."""

from __future__ import annotations

import torch

from cloze.changes import Shape
from cloze.checkpoint.build import build_step, plain
from cloze.networks.blocks.initial import Undrawn
from cloze.recipe.changes import change_of, parse_change
from cloze.recipe.recipe import Recipe


def require_change(recipe: Recipe, given: str) -> None:
    """Raise a `CheckpointError` if the network that a recipe exports cannot take a change, as the command line has it.

    The network is built on torch's meta device, so nothing is drawn or computed.
    """
    change, part = change_of(parse_change(given)), recipe.exported.part
    if change is None or part is None:
        return  # a faulty change is reported where it is read, and the network of a checkpoint when it is opened
    change.shape(Shape(recipe.name, part.name, plain(part.arguments)))
    size = next((text.tokenizer.arguments.get("size") for text in recipe.texts.values()), None)
    network = build_step(recipe, vocab_size=size if isinstance(size, int) else 1000, device="meta").networks[recipe.export]
    with torch.device("meta"), Undrawn():
        change.apply(network)
