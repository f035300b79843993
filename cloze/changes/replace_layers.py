"""`change: [replace_layers: {group: 2}]`: layers that step by step take the place of groups of layers (BERT-of-Theseus)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from cloze import rng
from cloze.bounds import Count, Share
from cloze.changes.change import Change, Shape, Tensors, Transition
from cloze.changes.keep_layers import KeepLayers, stacks_of
from cloze.changes.maps import freeze
from cloze.errors import CheckpointError
from cloze.interop.arguments import flat
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.selected import Selected
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.registry import Live, lookup, register
from cloze.uncompiled import uncompiled


class Predecessors(nn.Module, LayerHook):
    """The layers of the predecessor, `group` for each layer of the network, which stand in for it while training.

    In each step every layer is replaced by its group or not, for the whole batch. Nothing of the group is trained, but gradients
    pass through it. The output of the layer itself is then multiplied by zero, so that its parameters always have a gradient.
    """

    def __init__(self, layers: nn.ModuleList, group: int, odds: Any, clock: Clock) -> None:
        super().__init__()
        self.layers, self.group, self.odds, self.clock = layers, group, odds, clock
        self._entered: tuple[Tensor, Any] | None = None

    def takes_over(self, number: int) -> bool:
        """Whether layer `number` of the network is used in this step: a function of the seed, the step and the layer."""
        seed, step, _ = self.clock.numbers
        odds = self.odds(float(self.clock.share)) if callable(self.odds) else self.odds
        return rng.fold(seed, step, "replace_layers", number) / 2**64 < odds

    def before(self, number: int, layer: Any, x: Tensor, inputs: Any) -> Any:
        """Remembers what the layer reads."""
        self._entered = (x, inputs) if self.training else None
        return inputs

    @uncompiled
    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """The output of the layer, or in training that of the group."""
        if self._entered is None or self.takes_over(number):
            return x
        (states, inputs), self._entered = self._entered, None
        for layer in self.layers[number * self.group : (number + 1) * self.group]:
            states = layer(states, inputs)
        return states + 0.0 * x

    def count_operations(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """The group of layers, in a step that uses it; the first one reads embeddings, which need no gradient."""
        if self.training and not self.takes_over(number):
            group = counted.branch(needs_grad=number > 0)
            group.add(size, *self.layers[number * self.group : (number + 1) * self.group])
            counted.add_branches(group)


_BY_NUMBER = ("attention.band.", "positions.skip_every")  # arguments by which the number of a layer decides what it sees


@register("change", "replace_layers")
@dataclass(frozen=True)
class ReplaceLayers(Change):
    """One new layer for each `group` of the checkpoint's layers, which replaces them with the probability `odds`.

    BERT-of-Theseus (Xu et al., 2020, §3): the layers start as the checkpoint's lowest, and only they are trained; embeddings
    stay. Outside of training the network has the new layers alone. Exported is an ordinary network.

    Differs: the authors draw a coin in every forward pass. Here a step has one for each layer, however many micro-batches it has.
    """

    group: Count = 2
    odds: Live[Share] = 0.5

    lasts: ClassVar[bool] = True

    def shape(self, shape: Shape) -> Mapping[str, Any]:
        """The checkpoint's arguments with a layer for each group."""
        network_class: Any = lookup("network", shape.part)
        arguments = {name for name, value in flat(shape.arguments, shape.part).items() if value is not None}
        by_number = any(name.startswith(_BY_NUMBER) for name in arguments)
        if not network_class.one_stack or by_number:
            raise CheckpointError(f"{shape.origin}: {_refusal(network_class.__name__)}")
        ((name, layers),) = stacks_of(shape.part, shape.arguments).items()
        if layers % self.group:
            raise CheckpointError(
                f"{shape.origin}: replace_layers: {layers} layers are not a multiple of the group, {self.group}."
            )
        return {**shape.arguments, name: layers // self.group}

    def apply(self, network: Any) -> None:
        """Freeze all but the layers, and add the predecessor's."""
        layers: Any = network.layers if network.one_stack else []
        if not len(layers) or any(layer.lends for layer in layers):
            raise CheckpointError(_refusal(type(network).__name__))
        freeze(network)
        for parameter in layers.parameters():
            parameter.requires_grad_(True)
        clock = network.clock  # the one thing that copies share with the network
        old = nn.ModuleList(copy.deepcopy(layer, {id(clock): clock}) for layer in layers for _ in range(self.group))
        old.requires_grad_(False)
        network.around.append(Predecessors(old, self.group, self.odds, clock))

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The lowest layers' tensors for the network, and all layers' for the predecessor."""
        count = len(transition.new_network.layers)
        tensors = dict(KeepLayers(tuple(range(count))).weights(state, transition))
        hosts = {name: module for name, module in transition.new_network.named_modules() if isinstance(module, Predecessors)}
        for name, host in hosts.items():
            for number in range(len(host.layers)):
                start = f"layers.{number}."
                layer_tensors = {key.removeprefix(start): tensor for key, tensor in state.items() if key.startswith(start)}
                tensors.update({f"{name}.{start}{key}": tensor for key, tensor in layer_tensors.items()})
        return tensors

    def plain(self, network: Any) -> None:
        """The layers alone."""
        network.around = nn.ModuleList(module for module in network.around if not isinstance(module, Predecessors))


def _refusal(kind: str) -> str:
    return (
        f"replace_layers: {kind} is not a Transformer whose layers have weights of their own and see the same tokens and "
        "positions.\n  Leave the change out."
    )
