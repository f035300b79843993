"""The feed-forward halves of a layer. `Layer` itself holds the linear maps: names stay flat, and maps can be replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout, Positions
from cloze.networks.choices import Activation


def activate(x: Tensor, kind: Activation) -> Tensor:
    """GELU (erf), GELU (tanh form) or ReLU; the two GELUs differ by at most 4.73e-4."""
    if kind == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


@dataclass(frozen=True)
class FeedForward:
    """outer(activate(inner x)) with `inner` numbers between the maps (Vaswani et al., 2017, §3.3)."""

    inner: int
    activation: Activation = "gelu"
    bias: bool = True

    names: ClassVar[tuple[str, ...]] = ("inner", "outer")

    def maps(self, width: int) -> dict[str, nn.Linear]:
        """The maps by name, in the order in which they are drawn."""
        return {"inner": nn.Linear(width, self.inner, bias=self.bias), **self._outer(width)}

    def between(self, host: Any, x: Tensor) -> Tensor:
        """What `outer` reads, (…, D) to (…, inner); `host` is the layer that holds the maps."""
        return activate(host.inner(x), self.activation)

    def _outer(self, width: int) -> dict[str, nn.Linear]:
        return {"outer": nn.Linear(self.inner, width, bias=self.bias)}


@dataclass(frozen=True)
class GatedFeedForward(FeedForward):
    """outer(activate(inner x) ⊙ gate x) (Shazeer, 2020, eq. 5), the gate a map of its own (T5 v1.1)."""

    names: ClassVar[tuple[str, ...]] = ("inner", "gate", "outer")

    def maps(self, width: int) -> dict[str, nn.Linear]:
        """With `gate`."""
        made = {name: nn.Linear(width, self.inner, bias=self.bias) for name in ("inner", "gate")}
        return {**made, **self._outer(width)}

    def between(self, host: Any, x: Tensor) -> Tensor:
        """The product."""
        made: Tensor = activate(host.inner(x), self.activation) * host.gate(x)
        return made


@dataclass(frozen=True)
class StackedGate(FeedForward):
    """The same with both maps stacked in `inner`, that of the gate below (ModernBERT)."""

    def maps(self, width: int) -> dict[str, nn.Linear]:
        """`inner` makes twice as many numbers."""
        return {"inner": nn.Linear(width, 2 * self.inner, bias=self.bias), **self._outer(width)}

    def between(self, host: Any, x: Tensor) -> Tensor:
        """The product of both halves."""
        active, gate = host.inner(x).chunk(2, dim=-1)
        made: Tensor = activate(active, self.activation) * gate
        return made


@dataclass(frozen=True)
class FeedForwardCall:
    """A feed-forward with the inputs of one call: a function of x, which `Layer` puts into a residual connection.

    `host` is the layer that holds the maps.
    """

    kind: FeedForward
    host: Any
    dropout: Dropout
    positions: Positions | None

    def __call__(self, x: Tensor) -> Tensor:
        made: Tensor = self.host.outer(self.dropout(self.kind.between(self.host, x), self.positions))
        return made
