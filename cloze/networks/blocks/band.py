"""Locally banded attention: what a token sees is cut to its neighbourhood (Child et al., 2019, §4; Warner et al., 2024, §2.1)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from cloze.errors import RecipeError
from cloze.networks.blocks.visibility import Visibility


def reach(order: str, band: int) -> tuple[int, int]:
    """How many tokens back and ahead: `band` counts the token itself in a running order, else half of it on each side."""
    return {"left_to_right": (band - 1, 0), "right_to_left": (0, band - 1)}.get(order, (band // 2, band // 2))


def narrow(
    seen: Visibility, order: Tensor | str, band: int, *, length: int, past: int, device: torch.device
) -> Visibility:
    """`seen` within the band: i - j < band from left to right, |i - j| <= band / 2 in the open order.

    Distances are counted along the row, so packed examples keep their own. A band that reaches everything changes nothing.
    """
    if not isinstance(order, str):
        raise RecipeError("attention_band: the order is given token by token; a band needs `order: open`, `left_to_right` "
                          "or `right_to_left`. Leave attention_band out, or take a constant order.")
    back, ahead = reach(order, band)
    last = past + length - 1
    if (back >= last or order == "right_to_left") and (ahead >= last or order == "left_to_right"):
        return seen
    query = torch.arange(past, past + length, device=device)[:, None]
    distance = query - torch.arange(past + length, device=device)
    near = ((distance <= back) & (distance >= -ahead))[None, None]
    if seen.kind == "causal":
        near = near & (distance >= 0)
    return replace(seen, kind="mask", mask=near if seen.mask is None else seen.mask & near, reach=(back, ahead))
