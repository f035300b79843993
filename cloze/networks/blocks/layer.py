"""One Transformer layer: attention and two dense maps, each with dropout, a residual and a norm before or after."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.blocks import fused
from cloze.networks.blocks.attention import Attention, Where
from cloze.networks.blocks.dropout import Dropout, Places
from cloze.networks.blocks.norm import Normalisation, make_norm
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.clock import Clock

Activation = Literal["gelu", "gelu_tanh", "relu"]


def activate(x: Tensor, kind: Activation) -> Tensor:
    """GELU (erf), GELU (tanh form) or ReLU; the two GELUs differ by at most 4.73e-4."""
    if kind == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


class TransformerLayer(nn.Module):
    """A layer of BERT (`post`) or GPT-2 (`pre`). Parameters: attention, attention_norm, inner, outer, inner_norm.

    `gated`: `inner` makes twice as many numbers, and the first half, activated, is multiplied by the second (Shazeer,
    2020, eq. 5). `first_norm` false: attention reads its input without a norm, where the embeddings have just had one.
    """

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
        normalisation: Normalisation = "layer",
        bias: bool = True,
        norm_bias: bool = True,
        gated: bool = False,
        first_norm: bool = True,
    ) -> None:
        super().__init__()
        if norm == "post" and not first_norm:
            raise RecipeError("transformer: only layers with `norm: pre` can do without first_norm. Leave it out.")
        self.norm = norm
        self.lends = False  # whether other layers use maps of this one
        self.activation: Activation = activation
        self.gated = gated
        self.attention = Attention(width=width, heads=heads, dropout=Dropout(attention_dropout, clock), bias=bias)
        self.attention_norm = (
            make_norm(normalisation, width, norm_epsilon, bias=norm_bias) if first_norm else nn.Identity()
        )
        self.inner = nn.Linear(width, 2 * inner if gated else inner, bias=bias)
        self.outer = nn.Linear(inner, width, bias=bias)
        self.inner_norm = make_norm(normalisation, width, norm_epsilon, bias=norm_bias)
        self.attention_dropout = Dropout(dropout, clock)
        self.inner_dropout = Dropout(dropout, clock)

    def forward(
        self,
        x: Tensor,
        seen: Visibility,
        *,
        kept: list[Tensor] | None = None,
        places: Places | None = None,
        where: Where = None,
    ) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) at `places` alone: attention reads all tokens, the rest is per token."""
        free = kept is None and where is None and not torch.compiler.is_compiling()
        if x.device.type == "cpu" and free and self._is_plain():
            return self._fused(x, seen, places)
        pre = self.norm == "pre"
        context = self.attention.context(self.attention_norm(x) if pre else x, seen, kept, where)
        if places is not None:
            context, x = context[places.row, places.position], x[places.row, places.position]
        x = x + self.attention_dropout(self.attention.out(context), places)
        x = x if pre else self.attention_norm(x)
        x = x + self.inner_dropout(self._feed(self.inner_norm(x) if pre else x), places)
        return x if pre else self.inner_norm(x)

    def _feed(self, x: Tensor) -> Tensor:
        made = self.inner(x)
        if not self.gated:
            return self.outer(activate(made, self.activation))
        active, gate = made.chunk(2, dim=-1)
        return self.outer(activate(active, self.activation) * gate)

    def _is_plain(self) -> bool:
        attention = self.attention
        if self.gated:
            return False
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
        self, norm: nn.Module, dropout: Dropout, shape: tuple[int, ...], x: Tensor, places: Places | None
    ) -> fused.Half:
        assert isinstance(norm, nn.LayerNorm)  # seen to by `fused.plain`
        if not dropout.active:
            return fused.Half(self.norm == "pre", norm.eps, None, 1.0)
        keep = dropout.keep_hidden(shape, x.device, places)
        return fused.Half(self.norm == "pre", norm.eps, keep.view(-1, shape[-1]), dropout.scale)
