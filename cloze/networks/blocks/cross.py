"""The layer of an encoder-decoder: attention to the own sequence, in the decoder to the encoder's states too, and a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout, drop
from cloze.networks.blocks.fused import Feed, Half, simple
from cloze.networks.blocks.fused_attention import Attend, Real, Sequences
from cloze.networks.blocks.layer import Activation, activate
from cloze.networks.blocks.locked import LockedDropout
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
            if rate and isinstance(self.dropout, LockedDropout):
                value, rate = self.dropout.of_values(value), 0.0
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
    makes is activated and multiplied by what `gate` makes (Shazeer, 2020, eq. 5). `locked`: rows drop the same at all positions.
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
        locked: bool = False,
    ) -> None:
        super().__init__()
        kind = LockedDropout if locked else Dropout
        self.norm = norm
        self.activation: Activation = activation

        def attention(across: bool) -> HeadedAttention:
            return HeadedAttention(
                width=width, heads=heads, head_width=head_width, bias=biases, scaled=scaled, across=across,
                dropout=kind(attention_dropout, clock),
            )

        self.attention = attention(False)
        self.attention_norm = make_norm(normalisation, width, norm_epsilon)
        self.attention_dropout = kind(dropout, clock)
        self.crossing = attention(True) if across else None
        self.crossing_norm = make_norm(normalisation, width, norm_epsilon) if across else None
        self.crossing_dropout = kind(dropout, clock)
        self.inner = nn.Linear(width, inner, bias=biases)
        self.gate = nn.Linear(width, inner, bias=biases) if gated else None
        self.outer = nn.Linear(inner, width, bias=biases)
        self.inner_norm = make_norm(normalisation, width, norm_epsilon)
        self.active_dropout = kind(inner_dropout, clock)
        self.inner_dropout = kind(dropout, clock)

    def forward(
        self,
        x: Tensor,
        added: Tensor | None,
        *,
        source: Tensor | None = None,
        source_added: Tensor | None = None,
        kept: list[Tensor] | None = None,
        source_kept: list[Tensor] | None = None,
        real: Real | None = None,
        source_real: Real | None = None,
    ) -> Tensor:
        """(B, L, D) to (B, L, D); `source` (B, S, D) are the encoder's states, `added` and `source_added` join the scores.

        Where `takes_rows` says so, x may be the states (M, D) of the tokens in `real`, and `source` of those in `source_real`.
        """
        free = x.device.type == "cpu" and not torch.compiler.is_compiling()
        pre, crossing, norm = self.norm == "pre", self.crossing, self.crossing_norm
        own = self.attention
        if free and kept is None and simple(self.attention_norm, pre, own.projections, own.out):
            x = self._fused_attention(x, None, added, own, self.attention_norm, self.attention_dropout, real, None)
        else:
            x = self._around(x, self.attention_norm, self.attention_dropout, lambda y: own(y, added, kept))
        if crossing is not None and norm is not None and source is not None:
            if free and source_kept is None and simple(norm, pre, crossing.query, crossing.memory, crossing.out):
                x = self._fused_attention(
                    x, source, source_added, crossing, norm, self.crossing_dropout, real, source_real
                )
            else:
                x = self._around(
                    x, norm, self.crossing_dropout, lambda y: crossing.across(y, source, source_added, source_kept)
                )
        if free and self.gate is None and simple(self.inner_norm, pre, self.inner, self.outer):
            return self._fused_feed(x, real)
        return self._around(x, self.inner_norm, self.inner_dropout, self._feed)

    def takes_rows(self) -> bool:
        """Whether all of the layer runs by the functions of a CPU, which padding can be left out of."""
        if torch.compiler.is_compiling() or self.outer.weight.device.type != "cpu" or self.gate is not None:
            return False
        pre, crossing, norm = self.norm == "pre", self.crossing, self.crossing_norm
        own = simple(self.attention_norm, pre, self.attention.projections, self.attention.out)
        own = own and simple(self.inner_norm, pre, self.inner, self.outer)
        if crossing is None or norm is None:
            return own
        return own and simple(norm, pre, crossing.query, crossing.memory, crossing.out)

    def _around(self, x: Tensor, norm: nn.Module, dropout: Dropout, change: Callable[[Tensor], Tensor]) -> Tensor:
        """A residual around `change` with the norm before or after."""
        if self.norm == "pre":
            return x + dropout(change(norm(x)))
        return norm(x + dropout(change(x)))

    def _feed(self, x: Tensor) -> Tensor:
        made = activate(self.inner(x), self.activation)
        made = made if self.gate is None else made * self.gate(x)
        return self.outer(self.active_dropout(made))

    def _fused_attention(
        self, x: Tensor, source: Tensor | None, added: Tensor | None, attention: HeadedAttention, norm: nn.Module,
        dropout: Dropout, real: Real | None, source_real: Real | None,
    ) -> Tensor:
        """Attention with its residual and norm by the function of `fused_attention.py`."""
        batch, queries = (real.batch, real.length) if real is not None else x.shape[:2]
        other = real if source is None else source_real
        keys = other.length if other is not None else (x if source is None else source).shape[1]
        keep, scale = None, 1.0
        if attention.dropout.active:
            keep = attention.dropout.keep_scores(batch, attention.heads, queries, keys, x.device)
            scale = attention.dropout.scale
        asking = attention.projections if attention.query is None else attention.query
        assert asking is not None and isinstance(norm.weight, Tensor)  # one of the two holds the queries
        rows = Attend.apply(
            x.reshape(-1, x.shape[-1]), None if source is None else source.to(x.dtype).reshape(-1, source.shape[-1]),
            asking.weight, asking.bias,
            *((None, None) if attention.memory is None else (attention.memory.weight, attention.memory.bias)),
            attention.out.weight, attention.out.bias, norm.weight, getattr(norm, "bias", None),
            None if added is None else added.to(x.dtype),
            Sequences(
                batch, queries, keys, attention.heads, attention.scale, keep, scale,
                real, other,
            ),
            self._half(norm, dropout, x, real),
        )
        return rows.view(x.shape)

    def _fused_feed(self, x: Tensor, real: Real | None) -> Tensor:
        """The two maps with their residual and norm by the function of `fused.py`."""
        norm, between, keep = self.inner_norm, self.active_dropout, None
        if between.active:
            shape = (*x.shape[:-1], self.inner.out_features)
            keep = between.keep_hidden(shape, x.device, None if real is None else real.positions).view(-1, shape[-1])
        rows = Feed.apply(
            x.reshape(-1, x.shape[-1]), self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias, norm.weight,
            getattr(norm, "bias", None), self.activation, keep, between.scale if between.active else 1.0,
            self._half(norm, self.inner_dropout, x, real),
        )
        return rows.view(x.shape)

    def _half(self, norm: nn.Module, dropout: Dropout, x: Tensor, real: Real | None) -> Half:
        epsilon = norm.eps
        assert isinstance(epsilon, float)  # `simple` saw to it: a norm of this package
        if not dropout.active:
            return Half(self.norm == "pre", epsilon, None, 1.0)
        keep = dropout.keep_hidden(x.shape, x.device, None if real is None else real.positions).view(-1, x.shape[-1])
        return Half(self.norm == "pre", epsilon, keep, dropout.scale)
