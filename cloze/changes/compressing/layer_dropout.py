"""`change: [layer_dropout: 0.2]`: whole layers are skipped at random in training, so that some can be cut afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from cloze import rng
from cloze.bounds import BelowOne
from cloze.changes.change import Change
from cloze.errors import CheckpointError
from cloze.networks import TwoStream
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.selected import Selected
from cloze.networks.clock import Clock, clock_of
from cloze.registry import register
from cloze.uncompiled import uncompiled


class Skips(nn.Module, LayerHook):
    """Replaces the output of a layer by its input with probability `odds`, in training; nothing is scaled.

    The draw is a function of the layer, the step and the first row of the micro-batch. The output of a skipped layer is
    multiplied by zero, so that its parameters always have a gradient, which several ranks exchange.
    """

    def __init__(self, odds: float, clock: Clock, name: str) -> None:
        super().__init__()
        self.odds, self.clock, self.name = odds, clock, name
        self.entered: Tensor | None = None

    def before(self, number: int, layer: Any, x: Tensor, inputs: Any) -> Any:
        """Keeps x (B, L, D) until the layer is done."""
        self.entered = x if self.training else None
        return inputs

    @uncompiled
    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """x, or what entered the layer."""
        entered, self.entered = self.entered, None
        return x if entered is None or not self.skips(number) else entered + 0.0 * x

    def skips(self, number: int) -> bool:
        """Whether a layer is skipped in this call."""
        return rng.fold(*self.clock.numbers, self.name, number) / 2**64 < self.odds


@register("change", "layer_dropout")
@dataclass(frozen=True)
class LayerDropout(Change):
    """LayerDrop (Fan et al., 2020, §3.1): in training, each layer is skipped with probability `odds`.

    Layers are drawn independently in every call; outputs are not scaled, and all layers run in evaluation. What is saved is an
    ordinary network; `cloze compress --layers` cuts it to any depth. The authors advise 0.2, or 0.5 if half of the layers are to
    be cut, and less of other dropout; and they advise skipping while pre-training: skipping in fine-tuning alone does not make
    layers dispensable (README of their code, fairseq examples/layerdrop).

    Differs: a skipped layer is computed, and its output is left out; a step saves no time.
    """

    odds: BelowOne

    @property
    def needs_checkpoint(self) -> bool:
        """A network may learn from the start without some layers."""
        return False

    def apply(self, network: Any) -> None:
        """Put an object around the layers of every stack."""
        stacks = {
            name: module for name, module in network.named_modules()
            if name.rpartition(".")[2] == "around" and isinstance(module, nn.ModuleList)
        }
        has_layers = any(isinstance(module, Layer) for module in network.modules())
        if not stacks or not has_layers or isinstance(network, TwoStream):
            why = "computes two streams in each layer" if isinstance(network, TwoStream) else "has no layers that can be skipped"
            raise CheckpointError(f"layer_dropout: {type(network).__name__} {why}. Leave the change out.")
        clock: Any = clock_of(network)  # a `Layer` has dropout, which reads it
        for name, around in stacks.items():
            around.append(Skips(self.odds, clock, f"layer_dropout {name}").train(network.training))
