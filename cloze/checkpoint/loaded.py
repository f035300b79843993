"""A checkpoint that is ready for use, and what its network is built from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cloze.decoding.pictures import Pictures
from cloze.errors import CheckpointError
from cloze.networks.clock import Clock
from cloze.reading import Reading
from cloze.recipe.towers import Towers, towers_in
from cloze.text import Annotations, Tokenizer


@dataclass(frozen=True, repr=False)
class Loaded:
    """A checkpoint, ready for use: the network in eval mode, its heads by name, its tokenizer and how it reads text.

    `heads` are the objectives that the network was trained with, by name; `reads` maps the readings of each head to states of
    the network where the names differ. `input_edits` compute further inputs from the tokens (ZEN's n-grams) or from labelled
    layers (ERNIE's entities), which `annotations` make; `tables` are the look-up tables that they use. `others` opens another
    network of the same run. `pictures` are those that texts may name. `precision` is what products are cast to in use, None for
    fp32. `imported` is the `Imported` that `open_folder` read, None in a run that measures itself. `recipe` is the recipe of the
    run, None if cloze did not train it.
    """

    recipe: Mapping[str, Any] | None
    network: nn.Module
    heads: Mapping[str, nn.Module]
    tokenizer: Tokenizer
    reading: Reading
    order: str
    folder: Path
    network_arguments: Mapping[str, Any]
    clock: Clock
    imported: Any
    reads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    input_edits: tuple[Any, ...] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    others: Callable[[str], Loaded] | None = None
    annotations: Annotations = Annotations()
    pictures: Pictures | None = None
    precision: torch.dtype | None = None

    def other(self, name: str) -> Loaded:
        """Another network of the same run, by name; a `CheckpointError` if there is none."""
        if self.others is None:
            raise CheckpointError(f"{self.folder}: holds one network; there is none named {name!r}.")
        return self.others(name)

    @cached_property
    def towers(self) -> Towers:
        """The networks and heads that make vectors of queries and passages, if the run was trained to compare two."""
        return towers_in(self.recipe)

    @property
    def parameters(self) -> int:
        """The number of parameters of network and heads."""
        return sum(parameter.numel() for module in [self.network, *self.heads.values()] for parameter in module.parameters())

    def __repr__(self) -> str:
        """One line: folder, network, size, heads and vocabulary."""
        sizes = [f"{name} {self.network_arguments[name]}" for name in ("layers", "width") if name in self.network_arguments]
        return (
            f"<Loaded {str(self.folder)!r}: {', '.join([self.imported.model.part, *sizes])}, {self.parameters:,} parameters; "
            f"heads: {', '.join(self.heads) or 'none'}; {self.tokenizer.kind} of {self.tokenizer.size:,}; order {self.order}>"
        )


def network_inputs(vocab_size: int, tokenizer: Tokenizer, clock: Clock, tables: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the builder of a network takes besides its arguments, when a checkpoint is opened: there is no text to count."""
    return {
        "vocab_size": vocab_size, "clock": clock, "tables": tables or None, "spellings": tokenizer.spellings,
        "counts": None, "entity_count": None, "documents": None,
    }
