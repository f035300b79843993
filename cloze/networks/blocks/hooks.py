"""Objects around the layers of a stack (adapters, n-grams, entities, a second stream) and around a whole network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from cloze.networks.blocks.selected import Selected
from cloze.networks.cost import Operations, SequenceSize


class LayerHook:
    """An object that a stack calls around every layer; this one does nothing.

    A network calls the hooks in its `around` in every pass (modules with parameters, such as adapters), and those that
    `forward` gets as `layer_hooks` for one pass. Recurrent networks call only `after`, a GRU also for its last states.

    `per_token`: what it does to a token depends on no other token, so that the last layer may compute only some tokens.
    """

    per_token: bool = False

    def enter(self, x: Tensor) -> Tensor:
        """What the first layer reads in place of x (B, L, D)."""
        return x

    def before(self, number: int, layer: Any, x: Tensor, inputs: Any) -> Any:
        """The inputs of attention of the layer that reads x (B, L, D) next; called before the layer."""
        return inputs

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """What replaces the layer's output x: (B, L, D), or (M, D), the states of the selected tokens."""
        return x

    def count_operations(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Count the products of what it does around a layer that reads a sequence of this size."""


class NetworkHook:
    """An object around a whole network, such as a combination of its layers or prompts; this one does nothing.

    It may change the inputs of the network and the states that it gives. `makes`: the states that it replaces; a recipe that
    reads none of them in training is refused. `reads`: the name of another network of the run, whose top states it reads as the
    `vectors` of the view `view`.
    """

    makes: frozenset[str] = frozenset()
    reads: str | None = None
    view: str = "main"

    def call(
        self, network: Any, forward: Callable[..., Mapping[str, Any]], *, want: frozenset[str], **inputs: Any
    ) -> Mapping[str, Any]:
        """The wanted states of `network`, whose `forward` takes `want` and the `inputs`."""
        return forward(want=want, **inputs)

    def begin_operations(self, counted: Operations) -> None:
        """Change the fields that the network reads (`counted.fields`), for counting its products, which begin here."""

    def end_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Count the products of what it makes of the network's states; by default every token meets all of it."""
        counted.add(size, *self.children())  # type: ignore[attr-defined]
        counted.pass_through(self)  # type: ignore[arg-type]


def after_layer(layer_hooks: Iterable[Any], number: int, x: Tensor) -> Tensor:
    """The output x of a layer after every object around it has replaced it."""
    for hook in layer_hooks:
        x = hook.after(number, x, None)
    return x


def count_hooks(counted: Operations, layer_hooks: Iterable[Any], number: int, size: SequenceSize) -> None:
    """Count the products of every object around a layer that reads a sequence of this size."""
    for hook in layer_hooks:
        hook.count_operations(counted, number, size)
