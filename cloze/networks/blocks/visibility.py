"""Who sees whom: the one rule of `order` (see `cloze/fields.py`), turned into what an attention kernel needs.

Token i sees token j if and only if order[j] <= order[i], both are in the same packed block, and the field `visible`, where there
is one, lets it. Locally banded attention cuts what a token sees to its neighbourhood (Child et al., 2019, §4; Warner et al.,
2024, §2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from cloze.batch import block_starts, on_host, send, was_sent
from cloze.errors import RecipeError, propose
from cloze.networks.blocks.selected import Selected

CONSTANT_ORDERS = ("open", "left_to_right", "right_to_left")


@dataclass(frozen=True)
class Restricted:
    """An `order`, (B, L) integers or a constant one by name, in which each token sees only what `visible` (B, L, L) lets it."""

    order: Tensor | str
    visible: Tensor


#: What a network that takes `visible` gets as its order.
AnyOrder = Tensor | str | Restricted


@dataclass(frozen=True)
class Visibility:
    """`all`: no mask is needed. `causal`: the lower triangle. `mask`: a boolean (B or 1, 1, Lq, Lk), true where seen.

    `starts`: on a GPU, where the blocks of a batch alone make the mask, their `block_starts`, for kernels that take packed
    documents without a mask; `order` is then the constant order. `reach`: with a band, how many tokens back and ahead are seen at
    most; `mask` says the same. Every token sees itself, so that every query sees some key, unless queries `may_see_nothing`.
    """

    kind: Literal["all", "causal", "mask"]
    mask: Tensor | None = None
    starts: Tensor | None = None
    order: str | None = None
    reach: tuple[int, int] | None = None
    may_see_nothing: bool = False
    _biases: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False, compare=False)  # the same for all layers

    def select(self, selected: Selected) -> Visibility:
        """The same for the queries of the selected tokens only."""
        if self.kind == "all":
            return self
        if self.kind == "causal":
            assert selected.columns is not None  # `Selected.of` sets them
            key = torch.arange(selected.length, device=selected.flat.device)
            return Visibility("mask", (key <= selected.columns[:, :, None])[:, None])
        assert self.mask is not None  # `mask` is the only kind left
        return Visibility("mask", selected.queries_of(self.mask), may_see_nothing=self.may_see_nothing)

    def within(self, visible: Tensor) -> Visibility:
        """The same for tokens that see only what `visible` (B, L, L) lets them."""
        mask = self.mask_of(visible)
        return Visibility("mask", visible[:, None] if mask is None else visible[:, None] & mask)

    def mask_of(self, scores: Tensor) -> Tensor | None:
        """What to hide in scores (…, Lq, Lk); None: nothing."""
        if self.kind != "causal":
            return self.mask
        return torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()

    def bias(self, dtype: torch.dtype, length: int, device: torch.device) -> Tensor | None:
        """What is added to scores: 0 where seen, minus infinity elsewhere; broadcasts to (B, H, Lq, Lk). None: nothing."""
        if self.kind == "all":
            return None
        if self.kind == "causal":
            return _causal_bias(length, dtype, device)
        assert self.mask is not None  # `mask` is the only kind left
        if dtype not in self._biases:
            self._biases[dtype] = _bias(self.mask, dtype)
        return self._biases[dtype]


def _bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


@lru_cache(maxsize=8)
def _causal_bias(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # the cached tensor may later be saved for a backward pass
        return torch.full((length, length), float("-inf"), dtype=dtype, device=device).triu_(1)


def visibility(
    order: AnyOrder, block: Tensor | None, *, length: int, past: int, device: torch.device
) -> Visibility:
    """The visibility of `length` new tokens after `past` cached ones (B, L integers, or a constant order by name)."""
    if isinstance(order, Restricted):
        return visibility(order.order, block, length=length, past=past, device=device).within(order.visible)
    if isinstance(order, str) and order not in CONSTANT_ORDERS:
        raise RecipeError(f"unknown order {order!r}. {propose(order, CONSTANT_ORDERS)}")
    if isinstance(order, str) and block is None:
        if order == "open" or length == 1:
            return Visibility("all")
        if order == "left_to_right" and past == 0:
            return Visibility("causal")
        return Visibility("mask", _constant(order, length, past, device))
    if isinstance(order, str):
        assert block is not None  # a constant order without blocks has returned above
        same = (block[:, :, None] == block[:, None, :])[:, None]
        if order != "open":
            same = same & _constant(order, length, 0, device)
        starts = send(block_starts(on_host(block)), device) if was_sent(block) and order != "right_to_left" else None
        return Visibility("mask", same, starts, order)
    seen = order[:, None, :] <= order[:, :, None]
    if block is not None:
        seen = seen & (block[:, :, None] == block[:, None, :])
    return Visibility("mask", seen[:, None])


def _constant(order: str, length: int, past: int, device: torch.device) -> Tensor:
    query = torch.arange(past, past + length, device=device)[:, None]
    key = torch.arange(past + length, device=device)
    if order == "open":
        return torch.ones(1, 1, length, past + length, dtype=torch.bool, device=device)
    return (key <= query if order == "left_to_right" else key >= query)[None, None]


def reach(order: str, band: int) -> tuple[int, int]:
    """How many tokens back and ahead: `band` counts the token itself in a running order, else half of it on each side."""
    return {"left_to_right": (band - 1, 0), "right_to_left": (0, band - 1)}.get(order, (band // 2, band // 2))


def narrow(
    seen: Visibility, order: AnyOrder, band: int, *, length: int, past: int, device: torch.device
) -> Visibility:
    """`seen` within the band: i - j < band from left to right, |i - j| <= band / 2 in the open order.

    Distances are counted along the row, so packed examples keep their own. A band that reaches everything changes nothing.
    """
    if isinstance(order, Restricted):
        return narrow(seen, order.order, band, length=length, past=past, device=device)
    if not isinstance(order, str):
        raise RecipeError(
            "attention.band: the order is given token by token; a band needs `order: open`, `left_to_right` or `right_to_left`. "
            "Leave the band out, or write one of these orders."
        )
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
