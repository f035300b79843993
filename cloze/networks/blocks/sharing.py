"""Parameters shared between layers (ALBERT; Lan et al., 2020, §3.1)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from cloze.errors import RecipeError
from cloze.networks.blocks.layer import Layer
from cloze.networks.config import Share


def share_weights(layers: Sequence[Layer], share: Share) -> None:
    """Layers of one group use the maps and norms of the group's first layer; layer i of L is in group i·groups // L.

    `attention`: the projections and the norm of attention; `feed_forward`: all of its maps and their norm; `all`: both. The first
    layer alone holds the parameters, so a state dict names each of them once. Dropout stays every layer's own.
    """
    groups = share.groups
    if groups > len(layers):
        raise RecipeError(f"transformer.share: {groups} groups of {len(layers)} layers. Give groups from 1 to {len(layers)}.")
    firsts: dict[int, Layer] = {}
    for number, layer in enumerate(layers):
        first = firsts.setdefault(number * groups // len(layers), layer)
        if first is layer:
            continue
        first.lends = True
        if share.weights in ("attention", "all"):
            _borrow(layer.attention, first.attention, "projections", "out")
            _borrow(layer, first, "attention_norm")
        if share.weights in ("feed_forward", "all"):
            _borrow(layer, first, *layer.feed_forward.names, "inner_norm")


def _borrow(borrower: nn.Module, lender: nn.Module, *names: str) -> None:
    """Attributes past `nn.Module`: found by name, but neither registered, counted nor saved a second time."""
    for name in names:
        delattr(borrower, name)
        object.__setattr__(borrower, name, getattr(lender, name))
