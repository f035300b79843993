"""Objects around the layers of a stack: adapters, n-grams, entities, a second stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from cloze.networks.blocks.selected import Selected


class Around:
    """An object that a stack calls around every layer; this one does nothing.

    A network calls those of its `around`, which are modules with parameters of their own, such as adapters, in every pass, and
    those that `forward` is given in that pass. Recurrent networks call `after` alone.

    `per_token`: what it does to a token depends on no other, so that a last layer that runs at some tokens alone may meet it.
    """

    per_token: bool = False

    def enter(self, x: Tensor) -> Tensor:
        """What the first layer reads in place of x (B, L, D)."""
        return x

    def before(self, number: int, layer: Any, x: Tensor, given: Any) -> Any:
        """What the layer's attention is given to read x (B, L, D)."""
        return given

    def after(self, number: int, x: Tensor, selected: Selected | None) -> Tensor:
        """What follows reads in place of x: states (B, L, D), or (M, D), those of the selected tokens."""
        return x


def after_layer(around: Iterable[Any], number: int, x: Tensor) -> Tensor:
    """What follows a layer reads in place of its output x."""
    for each in around:
        x = each.after(number, x, None)
    return x
