"""Attention: one function that chooses the kernel by device, mask and length."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout, drop
from cloze.networks.blocks.relative import Relative
from cloze.networks.blocks.rotary import Rotation
from cloze.networks.blocks.visibility import Visibility

#: How attention itself knows about positions: by turned queries and keys, by vectors of distances, or not at all.
Where = Rotation | Relative | None


def attend(
    query: Tensor, key: Tensor, value: Tensor, seen: Visibility, dropout: Dropout, relative: Relative | None = None
) -> Tensor:
    """Softmax attention, (B, H, Lq, W) with keys and values (B, H, Lk, W), to (B, H, Lq, W)."""
    if query.device.type == "cuda" and relative is None:
        return _attend_cuda(query, key, value, seen, dropout)
    return attend_plain(query, key, value, seen, dropout, relative)


def attend_plain(
    query: Tensor, key: Tensor, value: Tensor, seen: Visibility, dropout: Dropout, relative: Relative | None = None
) -> Tensor:
    """Product, softmax, product; the softmax stays in the dtype of the scores."""
    query = query * (1.0 / math.sqrt(query.shape[-1]))
    scores = query @ key.transpose(-2, -1)
    if relative is not None:
        scores = scores + relative.scores(query)
    mask = seen.mask
    if seen.kind == "causal":
        length = scores.shape[-1]
        mask = torch.ones(length, length, dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = torch.softmax(scores, dim=-1, dtype=scores.dtype)
    if dropout.active:
        batch, heads, queries, keys = shares.shape
        shares = drop(shares, dropout.keep_scores(batch, heads, queries, keys, shares.device), dropout.scale)
    return shares @ value if relative is None else shares @ value + relative.values(shares)


def _attend_cuda(query: Tensor, key: Tensor, value: Tensor, seen: Visibility, dropout: Dropout) -> Tensor:
    """Flash attention where it can be had, packed rows included; else the kernel that takes a mask.

    Differs: the kernels draw dropout of weights from the device's generator, which `Transformer` seeds by the clock; the
    numbers depend on the row's place in the micro-batch, not on the row alone.
    """
    rate = dropout.rate if dropout.active else 0.0
    if seen.starts is not None and _flash_takes(query):
        longest = query.shape[2]
        rows = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]
        causal = seen.order == "left_to_right"
        back, ahead = seen.reach or (None, None)
        made = torch.ops.aten._flash_attention_forward(
            *rows, seen.starts, seen.starts, longest, longest, rate, causal, False, window_size_left=back,
            window_size_right=ahead,
        )
        return made[0].view(query.shape[0], longest, *query.shape[1::2]).transpose(1, 2)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=seen.mask, dropout_p=rate, is_causal=seen.kind == "causal"
    )


def _flash_takes(query: Tensor) -> bool:
    width, half = query.shape[-1], query.dtype in (torch.bfloat16, torch.float16)
    return half and width % 8 == 0 and width <= 256 and torch.backends.cuda.is_flash_attention_available()


class Attention(nn.Module):
    """Multi-head attention with one fused projection; `projections.weight` stacks query, key and value, (3D, D)."""

    def __init__(self, *, width: int, heads: int, dropout: Dropout, bias: bool = True) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        self.heads = heads
        self.projections = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.dropout = dropout

    def context(
        self, x: Tensor, seen: Visibility, kept: list[Tensor] | None = None, where: Where = None
    ) -> Tensor:
        """(B, L, D) to the heads' outputs side by side (B, L, D), before `out`. `kept` holds and receives keys, values."""
        batch, length, width = x.shape
        shaped = self.projections(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = shaped.permute(2, 0, 3, 1, 4).unbind(0)
        if isinstance(where, Rotation):
            query, key = where.turn(query), where.turn(key)
        if kept is not None:
            if kept:
                key, value = torch.cat([kept[0], key], dim=2), torch.cat([kept[1], value], dim=2)
            kept[:] = [key, value]
        relative = where if isinstance(where, Relative) else None
        return attend(query, key, value, seen, self.dropout, relative).transpose(1, 2).reshape(batch, length, width)

    def forward(
        self, x: Tensor, seen: Visibility, kept: list[Tensor] | None = None, where: Where = None
    ) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        return self.out(self.context(x, seen, kept, where))
