"""What every network promises: fields in, states out, tables to tie to and a ladder of depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

States = Mapping[str, Tensor]


class StateKind(NamedTuple):
    """The shape of a state in the legend of DESIGN §2, and what it may see: `order`, `before`, `left_to_right`, …"""

    shape: str
    sees: str


@runtime_checkable
class Network(Protocol):
    """An `nn.Module` that turns the fields of a view into the states that are wanted.

    `takes` are all fields it can use, `needs` the ones it cannot do without.
    """

    takes: frozenset[str]
    needs: frozenset[str]
    gives: Mapping[str, StateKind]
    width: int

    @property
    def tables(self) -> Mapping[str, nn.Embedding]:
        """Embeddings that heads may tie to."""

    def forward(self, *, want: frozenset[str], **fields: Any) -> States:
        """The wanted states, made from the fields by keyword."""

    def depth_groups(self) -> list[nn.Module]:
        """Embeddings first, then layers in order: the ladder of sharding, freezing, layer-wise rates and probes."""
