"""Other dropouts for a copy of a network that is tuned than those it was pre-trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.locked import LockedDropout
from cloze.networks.blocks.noise import Noise


@dataclass(frozen=True)
class Dropouts:
    """A rate for every dropout of a network by its name, `*` standing for any part of it; noise is 0.

    `locked` are those that drop the same numbers at every step of a row. Errors: a `RecipeError` for a name that no dropout of
    the network has, and for a dropout that no name means.
    """

    rates: Mapping[str, float]
    locked: tuple[str, ...] = ()

    def apply(self, network: nn.Module) -> None:
        """Change the network's own dropouts."""
        unused = set(self.rates)
        for name, module in list(network.named_modules()):
            if isinstance(module, Noise):
                module.deviation = 0.0
            if not isinstance(module, Dropout):
                continue
            pattern = next((one for one in self.rates if fnmatchcase(name, one)), None)
            if pattern is None:
                raise RecipeError(f"dropouts: no rate is given for {name}.")
            unused.discard(pattern)
            module.change(self.rates[pattern])
            if pattern in self.locked and not isinstance(module, LockedDropout):
                self._lock(network, name, module)
        if unused:
            raise RecipeError(f"dropouts: this network has no {', '.join(sorted(unused))}.")

    def _lock(self, network: nn.Module, name: str, module: Any) -> None:
        above, _, last = name.rpartition(".")
        made = LockedDropout(module.rate, module.clock)
        made.key = module.key
        setattr(network.get_submodule(above), last, made)
