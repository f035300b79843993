"""Parameters shared between layers (ALBERT; Lan et al., 2020, §3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import nn

from cloze.errors import RecipeError
from cloze.networks.blocks.layer import Layer

Repeat = Literal["none", "attention", "ffn", "all"]


def share(layers: Sequence[Layer], repeat: Repeat, groups: int) -> None:
    """Layers of one group use the maps and norms of the group's first layer; layer i of L is in group i·groups // L.

    `attention`: the projections and the norm of attention; `ffn`: both dense maps and their norm; `all`: both. The first
    layer alone holds the parameters, so a state names each of them once. Dropout stays every layer's own.
    """
    if not 1 <= groups <= max(1, len(layers)):
        raise RecipeError(f"transformer: {groups} groups of {len(layers)} layers. Give groups from 1 to {len(layers)}.")
    if groups > 1 and repeat == "none":
        raise RecipeError("transformer: groups of layers that share nothing. Give repeat, or leave groups out.")
    firsts: dict[int, Layer] = {}
    for number, layer in enumerate(layers):
        first = firsts.setdefault(number * groups // len(layers), layer)
        if first is layer:
            continue
        first.lends = repeat != "none"
        if repeat in ("attention", "all"):
            _borrow(layer.attention, first.attention, "projections", "out")
            _borrow(layer, first, "attention_norm")
        if repeat in ("ffn", "all"):
            _borrow(layer, first, "inner", "outer", "inner_norm")


def _borrow(borrower: nn.Module, lender: nn.Module, *names: str) -> None:
    """Attributes past `nn.Module`: found by name, but neither registered, counted nor saved a second time."""
    for name in names:
        delattr(borrower, name)
        object.__setattr__(borrower, name, getattr(lender, name))
