"""`change: [adapters: {width: 64}]`: small trained modules between the parts of a frozen network (Houlsby et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from cloze.bounds import NonNegative, Width
from cloze.changes.change import Change
from cloze.changes.maps import freeze
from cloze.errors import CheckpointError
from cloze.networks.blocks.feed_forward import activate
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.initial import draw
from cloze.networks.blocks.selected import Selected
from cloze.networks.choices import Activation
from cloze.networks.cost import Operations, SequenceSize
from cloze.registry import register

Function = Callable[..., Any]


class AdapterBottleneck(nn.Module):
    """up(activate(down x)), (…, D) to (…, D), with `inner` numbers between. `std` as in `Adapters`."""

    def __init__(self, width: int, inner: int, activation: Activation, std: float | None, like: Tensor) -> None:
        super().__init__()
        self.down = nn.Linear(width, inner, dtype=like.dtype, device=like.device)
        self.up = nn.Linear(inner, width, dtype=like.dtype, device=like.device)
        self.activation: Activation = activation
        if std is None:
            nn.init.kaiming_uniform_(self.down.weight, a=math.sqrt(5))
            nn.init.zeros_(self.up.weight)
        else:
            for linear in (self.down, self.up):
                draw(linear.weight, "truncated", std)
        nn.init.zeros_(self.down.bias)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor) -> Tensor:
        """What is added to x."""
        update: Tensor = self.up(activate(self.down(x), self.activation))
        return update


class InResidual(nn.Module):
    """A `NormPlace` with an adapter on what is added to x, after its dropout and before the sum and the norm."""

    def __init__(self, norm_place: Any, bottleneck: AdapterBottleneck) -> None:
        super().__init__()
        self.place, self.bottleneck, self.pre = norm_place, bottleneck, norm_place.pre
        self.norms_sum: bool = norm_place.norms_sum

    def connect(self, x: Tensor, function: Function, norm: Function, drop: Function, take: Function) -> Tensor:
        """As in `NormPlace`."""

        def adapted(output: Tensor) -> Tensor:
            dropped: Tensor = drop(output)
            return dropped + self.bottleneck(dropped)

        states: Tensor = self.place.connect(x, function, norm, adapted, take)
        return states


class AfterResidual(InResidual):
    """A `NormPlace` with an adapter on the sum z: norm(z + adapter(norm z)), or z + adapter(z) where the norm stands before."""

    def connect(self, x: Tensor, function: Function, norm: Function, drop: Function, take: Function) -> Tensor:
        """As in `NormPlace`."""
        states: Tensor
        if not self.norms_sum:
            states = self.place.connect(x, function, norm, drop, take)
            return states + self.bottleneck(states)
        states = self.place.connect(x, function, lambda z: norm(z + self.bottleneck(norm(z))), drop, take)
        return states


class AfterLayers(nn.Module, LayerHook):
    """An adapter on the output of each layer of a recurrent network."""

    per_token = True

    def __init__(self, bottlenecks: Sequence[AdapterBottleneck]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(bottlenecks)

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """x with what the adapter adds."""
        states: Tensor = x + self.layers[number](x)
        return states

    def count_operations(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """The layer's adapter, for every token."""
        counted.add(size, self.layers[number])


@register("change", "adapters")
@dataclass(frozen=True)
class Adapters(Change):
    """Adapters (Houlsby et al., 2019, §2.1): x + up(activate(down x)) with `width` numbers between both maps.

    Two in each Transformer layer, on the outputs of attention and of the feed-forward, after the dropout and before the sum and
    the norm, as in the authors' code (google-research/adapter-bert, `modeling.py`). An LSTM or GRU has one on the output of each
    layer. Trained are the adapters, the norms and the heads; all else is frozen.
    Differs: BERT's pooler belongs to the head and is trained; in the authors' code it stays as pre-trained.

    `std` draws both maps from a normal distribution cut at two standard deviations; the authors' code has 0.001. Without it `up`
    starts at zero, so that training starts from the checkpoint's outputs. The learning rate is about ten times that of full
    fine-tuning: 3e-4 for BERT-base in the authors' code.

    Adapters cannot be merged into weights: cloze alone opens the folder.
    """

    width: Width = 64
    activation: Activation = "gelu"
    std: NonNegative | None = None

    lasts: ClassVar[bool] = True
    rate: ClassVar[float] = 10.0
    #: Which residual connections of a layer get an adapter, its place there, and whether norms are trained.
    inside: ClassVar[tuple[str, ...]] = ("attention", "inner")
    module: ClassVar[type[InResidual]] = InResidual
    trains_norms: ClassVar[bool] = True

    def apply(self, network: Any) -> None:
        """Freeze the network and add the adapters."""
        hosts = [module for module in network.modules() if isinstance(getattr(module, "around", None), nn.ModuleList)]
        if not hosts:
            kind = type(network).__name__
            raise CheckpointError(f"adapters: {kind} has no layers that adapters can follow. Leave the change out.")
        freeze(network)
        if self.trains_norms:
            for module in network.modules():
                if isinstance(module, nn.LayerNorm | nn.RMSNorm):
                    module.requires_grad_(True)
        like = next(network.parameters())
        for host in hosts:
            widths = getattr(host, "layer_widths", ())
            if widths:
                host.around.append(AfterLayers([self._bottleneck(width, like) for width in widths]))
                continue
            for layer in host.layers:
                for name in self.inside:
                    bottleneck = self._bottleneck(layer.attention.out.out_features, like)
                    layer.around[name] = self.module(layer.place_of(name), bottleneck)

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError("adapters are modules of their own, which cannot be merged into weights.")

    def _bottleneck(self, width: int, like: Tensor) -> AdapterBottleneck:
        return AdapterBottleneck(width, self.width, self.activation, self.std, like)


@register("change", "pfeiffer_adapters")
@dataclass(frozen=True)
class PfeifferAdapters(Adapters):
    """One adapter in each Transformer layer, after the feed-forward (Pfeiffer et al., 2021, §3.1); norms are frozen, too.

    With z, the sum of the feed-forward's input and output, the layer gives norm(z + up(activate(down(norm z)))), with the layer's
    own norm twice, as `SeqBnConfig` of the package `adapters` does. Where norms stand before (GPT-2), it gives
    z + up(activate(down z)). All else is as in `adapters`: `up` starts at zero; in the package, both maps as with `std: 0.02`.
    """

    width: Width = 48
    activation: Activation = "relu"

    inside: ClassVar[tuple[str, ...]] = ("inner",)
    module: ClassVar[type[InResidual]] = AfterResidual
    trains_norms: ClassVar[bool] = False
