"""One Transformer layer: attention and two dense maps, each with dropout, a residual and a norm before or after."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.blocks import fused
from cloze.networks.blocks.attention import Attention, Where
from cloze.networks.blocks.dropout import Dropout, Positions
from cloze.networks.blocks.fused_attention import Attend, Real, Sequences
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
        positions: Positions | None = None,
        where: Where = None,
    ) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) at `positions` alone: attention reads all tokens, the rest is per token."""
        free = kept is None and where is None and not torch.compiler.is_compiling()
        some = positions is None or len(positions.row) > 0
        if x.device.type == "cpu" and free and some and self._is_plain():
            return self._fused(x, seen, positions)
        pre = self.norm == "pre"
        context = self.attention.context(self.attention_norm(x) if pre else x, seen, kept, where)
        if positions is not None:
            context, x = context[positions.row, positions.column], x[positions.row, positions.column]
        x = x + self.attention_dropout(self.attention.out(context), positions)
        x = x if pre else self.attention_norm(x)
        x = x + self.inner_dropout(self._feed(self.inner_norm(x) if pre else x), positions)
        return x if pre else self.inner_norm(x)

    def _feed(self, x: Tensor) -> Tensor:
        made = self.inner(x)
        if not self.gated:
            return self.outer(activate(made, self.activation))
        active, gate = made.chunk(2, dim=-1)
        return self.outer(activate(active, self.activation) * gate)

    def _is_plain(self) -> bool:
        attention = self.attention
        ours = type(attention) is Attention and not (attention._forward_hooks or attention._forward_pre_hooks)
        pre = self.norm == "pre"
        return ours and not self.gated and all(
            fused.simple(norm, pre, first, second)
            for norm, first, second in (
                (self.attention_norm, attention.projections, attention.out), (self.inner_norm, self.inner, self.outer),
            )
        )

    def _fused(self, x: Tensor, seen: Visibility, positions: Positions | None) -> Tensor:
        """The same layer by the functions of `fused_attention.py` and `fused.py`."""
        rows = self._fused_attention(x, seen, positions)
        norm = self.inner_norm
        rows = fused.Feed.apply(
            rows, self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias, norm.weight,
            getattr(norm, "bias", None), self.activation, None, 1.0, self._half(norm, self.inner_dropout, x, positions),
        )
        return rows.view(x.shape if positions is None else rows.shape)

    def _fused_attention(self, x: Tensor, seen: Visibility, positions: Positions | None) -> Tensor:
        """Rows (B*L, D), or (M, D) at `positions`, whose queries are then laid out like a short sequence of their own."""
        batch, length, width = x.shape
        attention, norm, rows = self.attention, self.attention_norm, x.reshape(-1, width)
        made, source, asking, columns, queries = attention.projections, None, None, None, length
        weights: list[Tensor | None] = [made.weight, made.bias, None, None]
        if positions is not None:
            source = rows if self.norm == "post" else norm(rows).to(x.dtype)
            rows = rows.index_select(0, positions.row * length + positions.column)
            asking, columns = Real.of_positions(positions, batch)
            queries = asking.length
            weights = [part for whole in (made.weight, made.bias) for part in _queries_and_rest(whole, width)]
            weights = [weights[0], weights[2], weights[1], weights[3]]
        keep, scale = None, 1.0
        if attention.dropout.active:
            keep = attention.dropout.keep_scores(batch, attention.heads, length, length, x.device, columns)
            scale = attention.dropout.scale
        assert isinstance(norm.weight, Tensor)  # seen to by `simple`
        sizes = Sequences(
            batch, queries, length, attention.heads, (width // attention.heads) ** -0.5, keep, scale, asking
        )
        return Attend.apply(
            rows, source, *weights, attention.out.weight, attention.out.bias, norm.weight, getattr(norm, "bias", None),
            seen.bias(x.dtype, length, x.device, columns), sizes, self._half(norm, self.attention_dropout, x, positions),
        )

    def _half(self, norm: nn.Module, dropout: Dropout, x: Tensor, positions: Positions | None) -> fused.Half:
        pre, epsilon = self.norm == "pre", norm.eps
        assert isinstance(epsilon, float)  # `simple` saw to it: a norm of this package or of torch
        if not dropout.active:
            return fused.Half(pre, epsilon, None, 1.0)
        keep = dropout.keep_hidden(x.shape, x.device, positions)
        return fused.Half(pre, epsilon, keep.view(-1, x.shape[-1]), dropout.scale)


def _queries_and_rest(stacked: Tensor | None, width: int) -> tuple[Tensor | None, Tensor | None]:
    """What makes queries, and what makes keys and values, of stacked projections."""
    return (None, None) if stacked is None else (stacked[:width], stacked[width:])
