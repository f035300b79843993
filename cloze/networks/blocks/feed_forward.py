"""The feed-forward halves of a layer. `Layer` itself holds the linear maps: names stay flat, and maps can be replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks import choices
from cloze.networks.blocks.dropout import Dropout, Positions
from cloze.networks.choices import Activation, FeedForwards


def activate(x: Tensor, kind: Activation) -> Tensor:
    """GELU (erf), GELU (tanh form), ReLU or SiLU; the two GELUs differ by at most 4.73e-4."""
    if kind in ("relu", "silu"):
        return F.relu(x) if kind == "relu" else F.silu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


@dataclass(frozen=True)
class FeedForward:
    """outer(activate(inner x)) with `inner` numbers between the maps (Vaswani et al., 2017, §3.3)."""

    inner: int
    activation: Activation = "gelu"
    bias: bool = True

    #: The maps that read x, and how many times `inner` numbers each makes.
    first_maps: ClassVar[Mapping[str, int]] = MappingProxyType({"inner": 1})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the maps, the one into the residual connection last."""
        return (*self.first_maps, "outer")

    def maps(self, width: int) -> dict[str, nn.Linear]:
        """The maps by name, in the order in which they are drawn."""
        maps = {name: nn.Linear(width, times * self.inner, bias=self.bias) for name, times in self.first_maps.items()}
        return {**maps, "outer": nn.Linear(self.inner, width, bias=self.bias)}

    def between(self, host: Any, x: Tensor) -> Tensor:
        """What `outer` reads, (…, D) to (…, inner); `host` is the layer that holds the maps."""
        return activate(host.inner(x), self.activation)


@dataclass(frozen=True)
class GatedFeedForward(FeedForward):
    """outer(activate(inner x) ⊙ gate x) (Shazeer, 2020, eq. 5), the gate a map of its own (T5 v1.1).

    With `norm_epsilon`, `outer` reads the product after a layer norm without weights (NormFormer; Shleifer et al., 2021, §2).
    """

    norm_epsilon: float | None = None

    first_maps = MappingProxyType({"inner": 1, "gate": 1})

    def between(self, host: Any, x: Tensor) -> Tensor:
        """The product."""
        active, gate = self.halves(host, x)
        product = activate(active, self.activation) * gate
        return product if self.norm_epsilon is None else F.layer_norm(product, product.shape[-1:], eps=self.norm_epsilon)

    def halves(self, host: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers to be activated, and the gate."""
        return host.inner(x), host.gate(x)


@dataclass(frozen=True)
class StackedGate(GatedFeedForward):
    """The same with both maps stacked in `inner`, that of the gate below (ModernBERT)."""

    first_maps = MappingProxyType({"inner": 2})

    def halves(self, host: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both halves of what `inner` makes."""
        active, gate = host.inner(x).chunk(2, dim=-1)
        return active, gate


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
        output: Tensor = self.host.outer(self.dropout(self.kind.between(self.host, x), self.positions))
        return output


def feed_forward_of(choice: FeedForwards, inner: int, epsilon: float, *, stacked: bool) -> FeedForward:
    """What a recipe chose, with `inner` numbers; `epsilon` is that of norms. `stacked`: both maps of a gate are one."""
    if not isinstance(choice, choices.GatedFeedForward):
        return FeedForward(inner, choice.activation, choice.biases)
    kind = StackedGate if stacked else GatedFeedForward
    return kind(inner, choice.activation, choice.biases, epsilon if choice.norm else None)
