"""`change: [read_vector]`: every layer of a network also reads one vector, from which it writes a text again (TSDAE)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from cloze.changes.change import Change
from cloze.errors import CheckpointError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.hooks import LayerHook, NetworkHook
from cloze.networks.blocks.initial import draw
from cloze.networks.blocks.selected import Selected
from cloze.networks.cost import Operations
from cloze.networks.transformer import Transformer
from cloze.registry import register

FIELD = "condition"


class Crossing(nn.Module):
    """What a layer reads in place of x: norm(x + dropout(out(value(v)))), (B, L, D) to (B, L, D).

    This is attention to a single vector, whose softmax is 1, so that neither queries nor keys matter. A network that normalises
    before its maps has no norm here. Parameters: `value.*`, `out.*`, `norm.*`.
    """

    def __init__(self, network: Transformer, layer: Any) -> None:
        super().__init__()
        width, like = network.width, layer.attention.out.weight
        self.value = nn.Linear(width, width, dtype=like.dtype, device=like.device)
        self.out = nn.Linear(width, width, dtype=like.dtype, device=like.device)
        self.norm = nn.Identity() if not layer.place.norms_sum else copy.deepcopy(layer.inner_norm)
        self.dropout = Dropout(network.rates.hidden, network.clock)
        for linear in (self.value, self.out):
            draw(linear.weight, "truncated", 0.02)
            nn.init.zeros_(linear.bias)
        for name, parameter in self.norm.named_parameters():
            nn.init.constant_(parameter, float(name == "weight"))

    def forward(self, x: Tensor, vector: Tensor) -> Tensor:
        """x (B, L, D) and the vector of each row (B, D)."""
        added: Tensor = self.out(self.value(vector.to(self.value.weight.dtype)))
        states: Tensor = self.norm(x + self.dropout(added[:, None].expand_as(x).to(x.dtype)))
        return states


class BetweenLayers(LayerHook):
    """Calls the crossing of every layer, in a pass with these vectors (B, D)."""

    per_token = True

    def __init__(self, crossings: Sequence[Crossing], vectors: Tensor) -> None:
        self.crossings, self.vectors = crossings, vectors

    def enter(self, x: Tensor) -> Tensor:
        """What the first layer reads."""
        states: Tensor = self.crossings[0](x, self.vectors)
        return states

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """What the next layer reads; the output of the last one stays."""
        return x if number + 1 == len(self.crossings) else self.crossings[number + 1](x, self.vectors)


class ReadsVector(nn.Module, NetworkHook):
    """Gives the layers of a network the vector `condition` (B, D) of its pass."""

    def __init__(self, crossings: Sequence[Crossing]) -> None:
        super().__init__()
        self.crossings: Sequence[Crossing] = nn.ModuleList(crossings)  # type: ignore[assignment]

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """The states of the network, whose layers read the vector; without one, those of the network as it was."""
        vectors = inputs.pop(FIELD, None)
        if vectors is None:
            return forward(want=want, **inputs)
        layer_hooks = [*inputs.pop("layer_hooks", ()), BetweenLayers(self.crossings, vectors)]
        return forward(want=want, layer_hooks=layer_hooks, **inputs)

    def begin_operations(self, counted: Operations) -> None:
        """Counts the maps of every row's vector."""
        for crossing in self.crossings if FIELD in counted.fields else ():
            counted.add(len(counted.fields["tokens"]), crossing.value, crossing.out)


@register("change", "read_vector")
@dataclass(frozen=True)
class ReadVector(Change):
    """Every layer of a Transformer also attends to one vector, which the pass takes: `take: {condition: PASS.summary}`.

    It makes the decoder of a denoising auto-encoder of a checkpoint: from the vector of a damaged sentence alone, it writes the
    sentence (TSDAE: Wang et al., 2021, §3). The maps start from normal numbers of deviation 0.02, their biases from zero. In a
    pass that takes no vector, the network computes what it did before.

    Differs: the vector is read before a layer's own attention; the authors' decoder, transformers' class with cross-attention,
    reads it behind. Probabilities of attention to the vector, which are all 1, are not dropped.
    """

    lasts: ClassVar[bool] = True
    continues: ClassVar[bool] = True

    def apply(self, network: Any) -> None:
        """Add a crossing before every layer."""
        if type(network) is not Transformer:
            raise CheckpointError(
                f"read_vector: {type(network).__name__} is not a plain stack of Transformer layers.\n"
                "  Start from an encoder such as bert, or leave the change out."
            )
        network.add_network_hook(ReadsVector([Crossing(network, layer) for layer in network.layers]))
        network.takes = network.takes | {FIELD}

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError("the layers of this network read a vector, so it cannot be written as an ordinary network.")
