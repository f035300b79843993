"""How attention makes queries, keys and values. It holds the maps itself, so that names stay flat and maps can be replaced."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor, nn

from cloze.networks.blocks.linear import part_of


class Projections(Protocol):
    """A way of projecting; `host` is the attention that holds the maps, `inside` is heads · head width."""

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """The maps by name."""

    def all(self, host: Any, x: Tensor) -> Tensor:
        """(B, L, D) to queries, keys and values side by side, (B, L, 3·inside)."""

    def queries(self, host: Any, x: Tensor) -> Tensor:
        """(…, D) to (…, inside)."""

    def memory(self, host: Any, x: Tensor) -> Tensor:
        """(…, D) to keys and values side by side, (…, 2·inside)."""


class Stacked:
    """A sequence reads itself: `projections` stacks query, key and value, (3·inside, D)."""

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """`projections`."""
        return {"projections": nn.Linear(width, 3 * inside, bias=bias)}

    def all(self, host: Any, x: Tensor) -> Tensor:
        """In one product."""
        made: Tensor = host.projections(x)
        return made

    def queries(self, host: Any, x: Tensor) -> Tensor:
        """By the first third."""
        return part_of(host.projections, x, 0, host.inside)

    def memory(self, host: Any, x: Tensor) -> Tensor:
        """By the rest."""
        return part_of(host.projections, x, host.inside)


class Across:
    """A sequence reads another one: `query` (inside, D) and `memory`, which stacks key and value, (2·inside, D)."""

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """`query` and `memory`."""
        return {"query": nn.Linear(width, inside, bias=bias), "memory": nn.Linear(width, 2 * inside, bias=bias)}

    def all(self, host: Any, x: Tensor) -> Tensor:
        """There is another sequence to read."""
        raise NotImplementedError("attention across sequences needs a source")

    def queries(self, host: Any, x: Tensor) -> Tensor:
        """Of the sequence that reads."""
        made: Tensor = host.query(x)
        return made

    def memory(self, host: Any, x: Tensor) -> Tensor:
        """Of the sequence that is read."""
        made: Tensor = host.memory(x)
        return made
