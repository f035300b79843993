"""How attention makes queries, keys and values. `Attention` itself holds the linear maps: names stay flat, maps can be replaced.

`host` is the `Attention`, `inside` its heads · head width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.networks.blocks.computed import part_of

#: What each map that stacks several projections holds, from the first row on; the parts have equally many rows.
STACKED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"projections": ("query", "key", "value"), "memory": ("key", "value"), "query_key": ("query", "key")}
)


def stacked(name: str) -> int:
    """How many matrices of the published models a parameter of that name holds, one above the other.

    What depends on the size of a matrix, such as LAMB and Adafactor, treats each of them as the matrix that it is there.

    >>> stacked("networks.main.layers.0.attention.projections.weight"), stacked("networks.main.embeddings.tokens.weight")
    (3, 1)
    """
    return len(STACKED.get(name.split(".")[-2], ("itself",))) if "." in name else 1


class StackedProjections:
    """A sequence reads itself: `projections` stacks query, key and value, (3·inside, D)."""

    names: ClassVar[tuple[str, ...]] = ("projections",)

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """The maps by name."""
        return {"projections": nn.Linear(width, 3 * inside, bias=bias)}

    def everything(self, host: Any, x: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Queries, keys and values of (…, D) in that order: tensors, each with how many of the three lie in it side by side."""
        yield host.projections(x), 3

    def queries(self, host: Any, x: Tensor) -> Tensor:
        """(…, D) to (…, inside)."""
        return part_of(host.projections, x, 0, host.inner_width)

    def memory(self, host: Any, x: Tensor) -> Tensor:
        """(…, D) to keys and values side by side, (…, 2·inside)."""
        return part_of(host.projections, x, host.inner_width)


class Across:
    """A sequence reads another one: `query` (inside, D) and `memory`, which stacks key and value, (2·inside, W).

    W, the width of the other sequence, is `width`, or that of the sequence that reads.
    """

    names: ClassVar[tuple[str, ...]] = ("query", "memory")

    def __init__(self, width: int | None = None) -> None:
        self.width = width

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """The maps by name."""
        return {
            "query": nn.Linear(width, inside, bias=bias), "memory": nn.Linear(self.width or width, 2 * inside, bias=bias),
        }

    def queries(self, host: Any, x: Tensor) -> Tensor:
        """Of the sequence that reads."""
        queries: Tensor = host.query(x)
        return queries

    def memory(self, host: Any, x: Tensor) -> Tensor:
        """Of the sequence that is read."""
        memory: Tensor = host.memory(x)
        return memory

    def everything(self, host: Any, x: Tensor) -> Iterator[tuple[Tensor, int]]:
        """As in `StackedProjections`, where the other sequence is x itself."""
        yield self.queries(host, x), 1
        yield self.memory(host, x), 2


class GroupedProjections(Across):
    """A sequence reads itself with fewer heads of keys and values than of queries: `query` (inside, D), and `memory` (2·S, D),
    which stacks key and value, for S = heads of keys and values · head width (Ainslie et al., 2023, §2.2)."""

    def __init__(self, heads: int, key_value_heads: int) -> None:
        super().__init__()
        self.heads, self.key_value_heads = heads, key_value_heads

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """The maps by name."""
        narrow = inside // self.heads * self.key_value_heads
        return {"query": nn.Linear(width, inside, bias=bias), "memory": nn.Linear(width, 2 * narrow, bias=bias)}


class SplitProjections:
    """Queries and keys are made of states of width `reads`, values of states of width `value_reads`: `query_key` stacks the maps
    of the first two, (2·inside, `reads`), and `value` is apart. The layer computes all three (`AttentionInputs.projected`),
    because it reads two states (MobileBERT)."""

    names: ClassVar[tuple[str, ...]] = ("query_key", "value")

    def __init__(self, *, reads: int, value_reads: int) -> None:
        self.reads, self.value_reads = reads, value_reads

    def maps(self, width: int, inside: int, *, bias: bool) -> dict[str, nn.Linear]:
        """The maps by name."""
        return {
            "query_key": nn.Linear(self.reads, 2 * inside, bias=bias), "value": nn.Linear(self.value_reads, inside, bias=bias)
        }

    def queries(self, host: Any, x: Tensor) -> Tensor:
        """(…, D) to (…, inside)."""
        return part_of(host.query_key, x, 0, host.inner_width)

    def memory(self, host: Any, x: Tensor) -> Tensor:
        """Keys and values of the same states side by side."""
        return torch.cat([part_of(host.query_key, x, host.inner_width), host.value(x)], dim=-1)

    def everything(self, host: Any, x: Tensor) -> Iterator[tuple[Tensor, int]]:
        """As in `StackedProjections`, all of the same states."""
        yield host.query_key(x), 2
        yield host.value(x), 1


Projections = StackedProjections | GroupedProjections | Across | SplitProjections
