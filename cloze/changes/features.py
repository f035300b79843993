"""`change: [features: {use: [-2, -1]}]`: heads read a combination of the layers of a frozen network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from cloze.changes.change import Change
from cloze.changes.maps import freeze
from cloze.errors import CheckpointError
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.hooks import NetworkHook
from cloze.networks.blocks.mix import Combine, chosen_layers, combination
from cloze.networks.network import Network
from cloze.registry import register


class Combined(nn.Module, NetworkHook):
    """A combination of the chosen `layers` in place of a network's top layer. Parameters: those of `combination`."""

    makes = frozenset({"hidden", "summary"})

    def __init__(self, layers: tuple[int, ...], combine: Combine) -> None:
        super().__init__()
        self.layers = list(layers)
        self.combination = combination(combine, len(layers), penalty=0.0, norm=False)

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """`hidden` (B, L, D') and `summary` (E, D') are those of the combination; all other states are the network's own."""
        if not want & self.makes:
            return forward(want=want, **inputs)
        inputs.pop("positions", None)  # only the top layer could be computed at some positions alone
        states = dict(forward(want=want - self.makes | {"layers"}, **inputs))
        hidden: Tensor = self.combination(states["layers"][self.layers])
        outputs = {**states, "hidden": hidden}
        if "summary" in want:
            tokens, block, summaries = (inputs.get(name) for name in ("tokens", "block", "summaries"))
            outputs["summary"] = network.summarise(hidden, tokens=tokens, block=block, summaries=summaries)
        return {name: state for name, state in outputs.items() if name in want}


@register("change", "features")
@dataclass(frozen=True)
class Features(Change):
    """Heads read a combination of the layers of a frozen network (Peters et al., 2018, §3.2; Devlin et al., 2019, §5.3).

    `use` chooses layers, counted from 0, the embeddings, or from -1, the top layer, down; None: all. `combine` says what is made
    of them: `mix`, a sum with trained weights; `sum`; or `concatenate`. The combination replaces the top layer for every head;
    dropout in the network is off. In an encoder-decoder it is that of the encoder; the decoder is frozen as well and reads
    the encoder's top layer. A network of one layer is frozen, and its states stay as they are.

    Trained are the weights of the mix and the heads. They cannot be merged into the network: cloze alone opens the folder.
    """

    use: tuple[int, ...] | None = None
    combine: Combine = "mix"

    lasts: ClassVar[bool] = True
    rate: ClassVar[float] = 20.0

    def apply(self, network: Any) -> None:
        """Freeze the network, turn its dropout off, and combine its layers."""
        if not isinstance(network, Network) or "layers" not in network.gives:
            raise CheckpointError(f"features: {type(network).__name__} gives no layers. Leave the change out.")
        count = network.layer_state_count
        chosen = chosen_layers(self.use, count, of="features") or tuple(range(count))
        freeze(network)
        for module in network.modules():
            if isinstance(module, Dropout):
                module.set_rate(0.0)
        if count > 1:
            combined, parameter = Combined(chosen, self.combine), next(network.parameters())
            network.add_network_hook(combined.to(parameter.device, parameter.dtype))
            width = combined.combination.width(network.width)
            network.widths = {**network.widths, "hidden": width, "summary": width}

    def plain(self, network: Any) -> None:
        """Refused."""
        raise CheckpointError("features are a combination of layers, which cannot be merged into weights.")
