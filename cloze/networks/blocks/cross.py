"""The layer of an encoder-decoder: attention to the own sequence, in the decoder to the encoder's states too, and a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks import fused
from cloze.networks.blocks.dropout import Dropout, drop
from cloze.networks.blocks.layer import Activation, activate
from cloze.networks.blocks.norm import Normalisation, make_norm
from cloze.networks.clock import Clock


class HeadedAttention(nn.Module):
    """Multi-head attention with heads of a width W of their own, scores scaled or not, and numbers added to them.

    `projections` stacks query, key and value (3HW, D); across sequences `query` (HW, D) and `memory`, which stacks key and
    value (2HW, D), stand apart.
    """

    def __init__(
        self, *, width: int, heads: int, head_width: int, bias: bool, scaled: bool, across: bool, dropout: Dropout
    ) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self.scale = head_width**-0.5 if scaled else 1.0
        inside = heads * head_width
        self.projections = None if across else nn.Linear(width, 3 * inside, bias=bias)
        self.query = nn.Linear(width, inside, bias=bias) if across else None
        self.memory = nn.Linear(width, 2 * inside, bias=bias) if across else None
        self.out = nn.Linear(inside, width, bias=bias)
        self.dropout = dropout

    def forward(self, x: Tensor, added: Tensor | None, kept: list[Tensor] | None = None) -> Tensor:
        """x (B, L, D) reads itself; `added` broadcasts to (B, H, L, past + L); `kept` holds and receives keys, values."""
        assert self.projections is not None  # made without `across`
        query, key, value = self._split(self.projections(x), 3)
        if kept is not None:
            if kept:
                key, value = torch.cat([kept[0], key], dim=2), torch.cat([kept[1], value], dim=2)
            kept[:] = [key, value]
        return self.out(self._attend(query, key, value, added))

    def across(self, x: Tensor, source: Tensor, added: Tensor | None, kept: list[Tensor] | None = None) -> Tensor:
        """x (B, T, D) reads `source` (B, L, D), whose keys and values are made once where `kept` is given."""
        assert self.query is not None and self.memory is not None  # made with `across`
        if kept:
            key, value = kept
        else:
            key, value = self._split(self.memory(source), 2)
            if kept is not None:
                kept[:] = [key, value]
        return self.out(self._attend(self._split(self.query(x), 1)[0], key, value, added))

    def _split(self, x: Tensor, kinds: int) -> tuple[Tensor, ...]:
        """(B, L, kinds·H·W) to `kinds` of (B, H, L, W)."""
        return x.view(*x.shape[:2], kinds, self.heads, self.head_width).permute(2, 0, 3, 1, 4).unbind(0)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, added: Tensor | None) -> Tensor:
        """The heads' outputs side by side, (B, Lq, H·W)."""
        if query.device.type == "cuda":
            rate = self.dropout.rate if self.dropout.active else 0.0
            context = F.scaled_dot_product_attention(
                query, key, value, attn_mask=None if added is None else added.to(query.dtype), dropout_p=rate,
                scale=self.scale,
            )
            return context.transpose(1, 2).flatten(2)
        scores = (query * self.scale if self.scale != 1.0 else query) @ key.transpose(-2, -1)
        if added is not None:
            scores = scores + added.to(scores.dtype)
        shares = torch.softmax(scores, dim=-1)
        if self.dropout.active:
            batch, heads, queries, keys = shares.shape
            shares = drop(shares, self.dropout.keep_scores(batch, heads, queries, keys, shares.device), self.dropout.scale)
        return (shares @ value).transpose(1, 2).flatten(2)


class SequenceLayer(nn.Module):
    """A layer of an encoder, or with `across` of a decoder.

    Parameters: attention, attention_norm, [crossing, crossing_norm,] inner, [gate,] outer, inner_norm. `gated`: what `inner`
    makes is activated and multiplied by what `gate` makes (Shazeer, 2020, eq. 5).
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        head_width: int,
        inner: int,
        norm: Literal["post", "pre"],
        normalisation: Normalisation,
        norm_epsilon: float,
        activation: Activation,
        gated: bool,
        biases: bool,
        scaled: bool,
        across: bool,
        dropout: float,
        attention_dropout: float,
        inner_dropout: float,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.activation: Activation = activation

        def attention(across: bool) -> HeadedAttention:
            return HeadedAttention(
                width=width, heads=heads, head_width=head_width, bias=biases, scaled=scaled, across=across,
                dropout=Dropout(attention_dropout, clock),
            )

        self.attention = attention(False)
        self.attention_norm = make_norm(normalisation, width, norm_epsilon)
        self.attention_dropout = Dropout(dropout, clock)
        self.crossing = attention(True) if across else None
        self.crossing_norm = make_norm(normalisation, width, norm_epsilon) if across else None
        self.crossing_dropout = Dropout(dropout, clock)
        self.inner = nn.Linear(width, inner, bias=biases)
        self.gate = nn.Linear(width, inner, bias=biases) if gated else None
        self.outer = nn.Linear(inner, width, bias=biases)
        self.inner_norm = make_norm(normalisation, width, norm_epsilon)
        self.active_dropout = Dropout(inner_dropout, clock)
        self.inner_dropout = Dropout(dropout, clock)

    def forward(
        self,
        x: Tensor,
        added: Tensor | None,
        *,
        source: Tensor | None = None,
        source_added: Tensor | None = None,
        kept: list[Tensor] | None = None,
        source_kept: list[Tensor] | None = None,
    ) -> Tensor:
        """(B, L, D) to (B, L, D); `source` (B, S, D) are the encoder's states, `added` and `source_added` join the scores."""
        free = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if free and kept is None and (added is None or not added.requires_grad) and self._attends_plainly():
            x = self._fused_attention(x, added)
        else:
            x = self._around(x, self.attention_norm, self.attention_dropout, lambda y: self.attention(y, added, kept))
        crossing, norm = self.crossing, self.crossing_norm
        if crossing is not None and norm is not None and source is not None:
            x = self._around(
                x, norm, self.crossing_dropout, lambda y: crossing.across(y, source, source_added, source_kept)
            )
        if free and self.gate is None and not self.active_dropout.active and self._maps_plainly():
            return self._fused_feed(x)
        return self._around(x, self.inner_norm, self.inner_dropout, self._feed)

    def _around(self, x: Tensor, norm: nn.Module, dropout: Dropout, change: Callable[[Tensor], Tensor]) -> Tensor:
        """A residual around `change` with the norm before or after."""
        if self.norm == "pre":
            return x + dropout(change(norm(x)))
        return norm(x + dropout(change(x)))

    def _feed(self, x: Tensor) -> Tensor:
        made = activate(self.inner(x), self.activation)
        made = made if self.gate is None else made * self.gate(x)
        return self.outer(self.active_dropout(made))

    def _attends_plainly(self) -> bool:
        attention, width = self.attention, self.outer.out_features
        assert attention.projections is not None  # made without `across`
        square = attention.heads * attention.head_width == width and attention.scale == attention.head_width**-0.5
        return square and fused.plain(attention.projections, attention.out, self.attention_norm)

    def _maps_plainly(self) -> bool:
        return fused.plain(self.inner, self.outer, self.inner_norm)

    def _fused_attention(self, x: Tensor, added: Tensor | None) -> Tensor:
        """Attention with its residual and norm by the function of `fused.py`."""
        batch, length, width = x.shape
        attention, keep, scale = self.attention, None, 1.0
        assert attention.projections is not None  # made without `across`
        if attention.dropout.active:
            keep = attention.dropout.keep_scores(batch, attention.heads, length, length, x.device)
            scale = attention.dropout.scale
        bias = None if added is None else added.to(x.dtype)
        rows = fused.SelfAttention.apply(
            x.reshape(-1, width), attention.projections.weight, attention.projections.bias, attention.out.weight,
            attention.out.bias, self.attention_norm.weight, self.attention_norm.bias,
            fused.Heads(batch, length, length, attention.heads, bias, keep, scale, None),
            self._half(self.attention_norm, self.attention_dropout, x),
        )
        return rows.view(x.shape)

    def _fused_feed(self, x: Tensor) -> Tensor:
        """The two maps with their residual and norm by the function of `fused.py`."""
        rows = fused.FeedForward.apply(
            x.reshape(-1, x.shape[-1]), self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias,
            self.inner_norm.weight, self.inner_norm.bias, self.activation,
            self._half(self.inner_norm, self.inner_dropout, x),
        )
        return rows.view(x.shape)

    def _half(self, norm: nn.Module, dropout: Dropout, x: Tensor) -> fused.Half:
        assert isinstance(norm, nn.LayerNorm)  # `plain` saw to it
        if not dropout.active:
            return fused.Half(self.norm == "pre", norm.eps, None, 1.0)
        keep = dropout.keep_hidden(x.shape, x.device).view(-1, x.shape[-1])
        return fused.Half(self.norm == "pre", norm.eps, keep, dropout.scale)
