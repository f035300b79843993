"""One Transformer layer: attention and two dense maps, each with dropout, a residual and a norm before or after."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks import fused
from cloze.networks.blocks.attention import Attention
from cloze.networks.blocks.dropout import Dropout, Places
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.clock import Clock

Activation = Literal["gelu", "gelu_tanh", "relu"]


def activate(x: Tensor, kind: Activation) -> Tensor:
    """GELU (erf), GELU (tanh form) or ReLU; the two GELUs differ by at most 4.73e-4."""
    if kind == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


class TransformerLayer(nn.Module):
    """A layer of BERT (`post`) or GPT-2 (`pre`). Parameters: attention, attention_norm, inner, outer, inner_norm."""

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        inner: int,
        norm: Literal["post", "pre"],
        activation: Activation,
        norm_epsilon: float,
        dropout: float,
        attention_dropout: float,
        clock: Clock,
    ) -> None:
        super().__init__()
        self.norm = norm
        self.activation: Activation = activation
        self.attention = Attention(width=width, heads=heads, dropout=Dropout(attention_dropout, clock))
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.inner_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.attention_dropout = Dropout(dropout, clock)
        self.inner_dropout = Dropout(dropout, clock)

    def forward(
        self, x: Tensor, seen: Visibility, *, kept: list[Tensor] | None = None, places: Places | None = None
    ) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) at `places` alone: attention reads all tokens, the rest is per token."""
        if x.device.type == "cpu" and kept is None and not torch.compiler.is_compiling() and self._is_plain():
            return self._fused(x, seen, places)
        pre = self.norm == "pre"
        context = self.attention.context(self.attention_norm(x) if pre else x, seen, kept)
        if places is not None:
            context, x = context[places.row, places.position], x[places.row, places.position]
        x = x + self.attention_dropout(self.attention.out(context), places)
        x = x if pre else self.attention_norm(x)
        changed = self.outer(activate(self.inner(self.inner_norm(x) if pre else x), self.activation))
        x = x + self.inner_dropout(changed, places)
        return x if pre else self.inner_norm(x)

    def _is_plain(self) -> bool:
        attention = self.attention
        ours = type(attention) is Attention and not attention._forward_hooks and not attention._forward_pre_hooks
        linears = (attention.projections, attention.out, self.inner, self.outer)
        return ours and fused.plain(*linears, self.attention_norm, self.inner_norm)

    def _fused(self, x: Tensor, seen: Visibility, places: Places | None) -> Tensor:
        """The same layer by the two functions of `fused.py`."""
        batch, length, width = x.shape
        attention = self.attention
        asked, positions = (None, None) if places is None else fused.ask(places.row, places.position, batch, length)
        queries = length if positions is None else positions.shape[1]
        keep, scale = None, 1.0
        if attention.dropout.active:
            keep = attention.dropout.keep_scores(batch, attention.heads, length, length, x.device, positions)
            scale = attention.dropout.scale
        bias = seen.bias(x.dtype, length, x.device, positions)
        heads = fused.Heads(batch, length, queries, attention.heads, bias, keep, scale, asked)
        out_shape = x.shape if places is None else (len(places.row), width)
        rows = fused.SelfAttention.apply(
            x.reshape(-1, width), attention.projections.weight, attention.projections.bias, attention.out.weight,
            attention.out.bias, self.attention_norm.weight, self.attention_norm.bias, heads,
            self._half(self.attention_norm, self.attention_dropout, out_shape, x, places),
        )
        rows = fused.FeedForward.apply(
            rows, self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias, self.inner_norm.weight,
            self.inner_norm.bias, self.activation,
            self._half(self.inner_norm, self.inner_dropout, out_shape, x, places),
        )
        return rows.view(out_shape)

    def _half(
        self, norm: nn.LayerNorm, dropout: Dropout, shape: tuple[int, ...], x: Tensor, places: Places | None
    ) -> fused.Half:
        if not dropout.active:
            return fused.Half(self.norm == "pre", norm.eps, None, 1.0)
        keep = dropout.keep_hidden(shape, x.device, places)
        return fused.Half(self.norm == "pre", norm.eps, keep.view(-1, shape[-1]), dropout.scale)
