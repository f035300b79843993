"""What crosses the border: one network with its heads, as plain tensors and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from cloze.registry import lookup, mark_of, parameters


class ReadsText(Protocol):
    """How a trained system reads text: `Reading` of a recipe fits, and so does `Reading` below."""

    @property
    def single(self) -> str: ...
    @property
    def pair(self) -> str | None: ...
    @property
    def summary(self) -> str: ...


@dataclass(frozen=True)
class Reading:
    """Templates for one text and for a pair, and which token sums up the row (`first` or `last`)."""

    single: str
    pair: str | None
    summary: str


@dataclass(frozen=True)
class Head:
    """An objective's parameters: the registered part, its arguments, and `objective.state_dict()`."""

    part: str
    arguments: Mapping[str, Any]
    state: Mapping[str, Tensor]

    def argument(self, name: str) -> Any:
        """An argument as it is in force: what was given, else the builder's default."""
        if name in self.arguments:
            return self.arguments[name]
        return _defaults("objective", self.part).get(name)


@dataclass(frozen=True)
class Model:
    """A network and its heads outside any module.

    `arguments` are the network's, every derived value filled in (see `complete`); `network` and the heads' states use our
    parameter names. `spare` holds tensors of a Hugging Face folder that no part of cloze uses (a pooler without an
    objective), under their names there, so that writing the folder again loses nothing.
    """

    arguments: Mapping[str, Any]
    order: str
    network: Mapping[str, Tensor]
    heads: Mapping[str, Head] = field(default_factory=dict)
    part: str = "transformer"
    spare: Mapping[str, Tensor] = field(default_factory=dict)


def complete(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The transformer's arguments with every default and every derived value filled in."""
    full = {**_defaults("network", "transformer"), **arguments}
    if full.get("inner") is None:
        full["inner"] = 4 * full["width"]
    if full.get("embedding_width") is None:
        full["embedding_width"] = full["width"]
    if full.get("attention_dropout") is None:
        full["attention_dropout"] = full["dropout"]
    if full.get("embedding_norm") is None:
        full["embedding_norm"] = full["norm"] == "post"
    if full.get("final_norm") is None:
        full["final_norm"] = full["norm"] == "pre"
    return full


def _defaults(kind: str, part: str) -> dict[str, Any]:
    """The defaults written in a builder's signature, without what assembly fills in."""
    import cloze.networks
    import cloze.objectives  # noqa: F401  the imports register the parts

    found = parameters(lookup(kind, part))
    return {
        name: parameter.default
        for name, parameter in found.items()
        if parameter.default is not parameter.empty and mark_of(parameter) is None
    }
