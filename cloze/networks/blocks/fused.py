"""The two halves of a Transformer layer as single autograd functions: the path of a CPU.

The same mathematics as `layer.py` written out, forward and backward, with what eager autograd cannot do: dropout and
softmax scales are folded into weights, results are written in place, the residual's gradient is accumulated by the
matrix product that produces it, and nothing is saved twice. On a 4x256 encoder this is what separates a training step
from the time of its matrix products alone. Holds for any floating dtype (float64 is how the tests check it); training
runs it in bfloat16 with float32 weights and statistics.

Differs: under bfloat16 the residual stream itself is bfloat16, where autocast alone would keep it in float32.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import keep_


class Half(NamedTuple):
    """What both halves share: norm before (`pre`) or after, its epsilon, and the dropout on the way into the residual."""

    pre: bool
    epsilon: float
    keep: Tensor | None
    scale: float


class Heads(NamedTuple):
    """Attention's own numbers: rows, positions and heads; the added mask; dropout of weights; flat places wanted."""

    batch: int
    length: int
    heads: int
    bias: Tensor | None
    keep: Tensor | None
    scale: float
    places: Tensor | None


def plain(*modules: nn.Module) -> bool:
    """Whether these are untouched linear maps and norms: a hook or a replacement must be called, not bypassed."""
    return all(
        type(m) in (nn.Linear, nn.LayerNorm) and not (m._forward_hooks or m._forward_pre_hooks or m._backward_hooks)
        for m in modules
    )


def _norm(x: Tensor, gain: Tensor, offset: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, (x.shape[-1],), gain, offset, epsilon)


def _norm_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, spread: Tensor, gain: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.native_layer_norm_backward(
        gradient, x, (x.shape[-1],), mean, spread, gain, offset, [True, True, True]
    )


def _weight_gradient(gradient: Tensor, x: Tensor, like: Tensor, scale: float) -> Tensor:
    """(N, out), (N, in) to the gradient of a linear weight, in the weight's own dtype."""
    product = (gradient.t() @ x).to(like.dtype)
    return product if scale == 1.0 else product.mul_(scale)


def _bias_gradient(gradient: Tensor, like: Tensor, scale: float) -> Tensor:
    """Column sums, as a product with ones: accumulated in float32 and several times faster than `sum` in bfloat16."""
    ones = gradient.new_full((1, gradient.shape[0]), 1.0)
    total = (ones @ gradient).view(-1).to(like.dtype)
    return total if scale == 1.0 else total.mul_(scale)


def _cast(weight: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    return weight.to(dtype) if scale == 1.0 else (weight * scale).to(dtype)


class FeedForward(torch.autograd.Function):
    """x + drop(outer(activate(inner(x)))) with a norm before or after, on rows (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, gain: Tensor, offset: Tensor,
        activation: str, half: Half,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            dtype = x.dtype
            read, mean, spread = _norm(x, gain, offset, half.epsilon) if half.pre else (x, None, None)
            w1_cast = w1.to(dtype)
            hidden = torch.addmm(b1.to(dtype), read, w1_cast.t())
            active = _activate(hidden, activation)
            changed = torch.addmm(b2.to(dtype), active, w2.to(dtype).t())
            if half.keep is not None:
                keep_(changed, half.keep)
            y = torch.add(x, changed, alpha=half.scale, out=changed)
            normed = x if half.pre else y
            if not half.pre:
                y, mean, spread = _norm(y, gain, offset, half.epsilon)
        ctx.save_for_backward(normed, read if half.pre else x, mean, spread, hidden, active, w1, w2, b1, gain, offset)
        ctx.activation, ctx.half = activation, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normed, read, mean, spread, hidden, active, w1, w2, b1, gain, offset = ctx.saved_tensors
        half: Half = ctx.half
        dtype, scale = gradient.dtype, half.scale
        d_gain = d_offset = None
        if not half.pre:
            gradient, d_gain, d_offset = _norm_backward(gradient.contiguous(), normed, mean, spread, gain, offset)
        through = gradient.contiguous()
        if half.keep is not None:
            through = keep_(through.clone(), half.keep)
        d_w2 = _weight_gradient(through, active, w2, scale)
        d_b2 = _bias_gradient(through, b1, scale)
        d_hidden = _activate_backward(through @ _cast(w2, dtype, scale), hidden, ctx.activation)
        d_w1 = _weight_gradient(d_hidden, read, w1, 1.0)
        d_b1 = _bias_gradient(d_hidden, b1, 1.0)
        if half.pre:
            d_read = d_hidden @ w1.to(dtype)
            d_x, d_gain, d_offset = _norm_backward(d_read, normed, mean, spread, gain, offset)
            d_x = d_x.add_(gradient)
        else:
            d_x = gradient.addmm_(d_hidden, w1.to(dtype))
        return d_x, d_w1, d_b1, d_w2, d_b2, d_gain, d_offset, None, None


def _activate(x: Tensor, kind: str) -> Tensor:
    if kind == "relu":
        return torch.relu(x)
    if kind == "gelu_tanh" and x.dtype == torch.bfloat16:
        return _look_up(x, _tanh_tables()[0])
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def _activate_backward(gradient: Tensor, x: Tensor, kind: str) -> Tensor:
    if kind == "relu":
        return torch.ops.aten.threshold_backward(gradient, x, 0)
    if kind == "gelu_tanh" and x.dtype == torch.bfloat16:
        return gradient.mul_(_look_up(x, _tanh_tables()[1]))
    return torch.ops.aten.gelu_backward(gradient, x, approximate="tanh" if kind == "gelu_tanh" else "none")


@lru_cache(maxsize=1)
def _tanh_tables() -> tuple[Tensor, Tensor]:
    """GELU's tanh form and its derivative for every bfloat16: a look-up takes half the time of torch's tanh on a CPU."""
    with torch.enable_grad(), torch.inference_mode(False):
        x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).double().requires_grad_()
        y = F.gelu(x, approximate="tanh")
        (slope,) = torch.autograd.grad(y.sum(), x)
    x = x.detach()
    y = torch.where(x.isneginf(), 0.0, y.detach())
    slope = torch.where(x.isinf(), (x > 0).double(), slope)
    return y.bfloat16(), slope.bfloat16()


def _look_up(x: Tensor, table: Tensor) -> Tensor:
    index = x.contiguous().view(torch.int16).to(torch.int32).bitwise_and_(0xFFFF)
    return table.index_select(0, index.view(-1)).view(x.shape)


class SelfAttention(torch.autograd.Function):
    """x + drop(out(attention(x))) with a norm before or after, on rows (N, D) of a batch; (M, D) at `places` alone."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, b: Tensor, w_out: Tensor, b_out: Tensor, gain: Tensor, offset: Tensor,
        heads: Heads, half: Half,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            dtype, width = x.dtype, x.shape[-1]
            read, mean, spread = _norm(x, gain, offset, half.epsilon) if half.pre else (x, None, None)
            w_cast, b_cast = _scaled_queries(w, b, heads.heads, dtype)
            stacked = torch.addmm(b_cast, read, w_cast.t())
            stacked = stacked.view(heads.batch, heads.length, 3, heads.heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = stacked.contiguous().view(3, -1, heads.length, width // heads.heads).unbind(0)
            scores = torch.bmm(query, key.transpose(1, 2))
            if heads.bias is not None:
                scores.view(heads.batch, heads.heads, heads.length, -1).add_(heads.bias)
            shares = torch.softmax(scores, dim=-1)
            used = shares
            if heads.keep is not None:
                used = keep_(scores.copy_(shares), heads.keep.view_as(scores))
            context = _beside(torch.bmm(used, value), heads)
            rows = x
            if heads.places is not None:
                context, rows = context.index_select(0, heads.places), x.index_select(0, heads.places)
            changed = torch.addmm(b_out.to(dtype), context, _cast(w_out, dtype, heads.scale).t())
            if half.keep is not None:
                keep_(changed, half.keep)
            y = torch.add(rows, changed, alpha=half.scale, out=changed)
            normed = x if half.pre else y
            if not half.pre:
                y, mean, spread = _norm(y, gain, offset, half.epsilon)
        ctx.save_for_backward(
            normed, read, mean, spread, query, key, value, shares, used, context, w, b, w_out, gain, offset
        )
        ctx.heads, ctx.half = heads, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normed, read, mean, spread, query, key, value, shares, used, context, w, b, w_out, gain, offset = ctx.saved_tensors
        heads: Heads = ctx.heads
        half: Half = ctx.half
        dtype = gradient.dtype
        d_gain = d_offset = None
        if not half.pre:
            gradient, d_gain, d_offset = _norm_backward(gradient.contiguous(), normed, mean, spread, gain, offset)
        through = gradient.contiguous()
        if half.keep is not None:
            through = keep_(through.clone(), half.keep)
        d_w_out = _weight_gradient(through, context, w_out, half.scale * heads.scale)
        d_b_out = _bias_gradient(through, b, half.scale)
        d_context = through @ _cast(w_out, dtype, half.scale * heads.scale)
        if heads.places is not None:
            d_context = _spread(d_context, heads.places, len(read))
            gradient = _spread(gradient, heads.places, len(read))
        d_stacked = _attention_backward(_apart(d_context, heads), query, key, value, shares, used, heads)
        w_cast, _ = _scaled_queries(w, b, heads.heads, dtype)
        d_w = _weight_gradient(d_stacked, read, w, 1.0)
        d_b = _bias_gradient(d_stacked, b, 1.0)
        width = read.shape[-1]
        share = 1.0 / math.sqrt(width // heads.heads)
        d_w[:width].mul_(share)
        d_b[:width].mul_(share)
        if half.pre:
            d_x, d_gain, d_offset = _norm_backward(d_stacked @ w_cast, normed, mean, spread, gain, offset)
            d_x = d_x.add_(gradient)
        else:
            d_x = gradient.addmm_(d_stacked, w_cast)
        return d_x, d_w, d_b, d_w_out, d_b_out, d_gain, d_offset, None, None


def _scaled_queries(w: Tensor, b: Tensor, heads: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weight and bias in `dtype`, with 1/sqrt(head width) folded into the rows that make queries."""
    width = w.shape[1]
    share = 1.0 / math.sqrt(width // heads)
    w_cast, b_cast = torch.empty_like(w, dtype=dtype), torch.empty_like(b, dtype=dtype)
    for cast, full in ((w_cast, w), (b_cast, b)):
        cast[:width] = full[:width] * share
        cast[width:] = full[width:]
    return w_cast, b_cast


def _beside(x: Tensor, heads: Heads) -> Tensor:
    """(B*H, L, W) to (B*L, H*W)."""
    return x.view(heads.batch, heads.heads, heads.length, -1).transpose(1, 2).reshape(heads.batch * heads.length, -1)


def _apart(x: Tensor, heads: Heads) -> Tensor:
    """(B*L, H*W) to (B*H, L, W)."""
    split = x.view(heads.batch, heads.length, heads.heads, -1).transpose(1, 2)
    return split.reshape(heads.batch * heads.heads, heads.length, -1)


def _spread(rows: Tensor, places: Tensor, count: int) -> Tensor:
    return rows.new_zeros(count, rows.shape[-1]).index_copy_(0, places, rows)


def _attention_backward(
    d_context: Tensor, query: Tensor, key: Tensor, value: Tensor, shares: Tensor, used: Tensor, heads: Heads
) -> Tensor:
    """The gradient of the stacked projections, (B*L, 3D), from that of the context (B*H, L, W)."""
    stacked = torch.empty((3, *query.shape), dtype=query.dtype)
    torch.bmm(used.transpose(1, 2), d_context, out=stacked[2])
    d_shares = torch.bmm(d_context, value.transpose(1, 2))
    if heads.keep is not None:
        keep_(d_shares, heads.keep.view_as(d_shares))
    d_scores = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype)
    torch.bmm(d_scores, key, out=stacked[0])
    torch.bmm(d_scores.transpose(1, 2), query, out=stacked[1])
    apart = stacked.view(3, heads.batch, heads.heads, heads.length, -1).permute(1, 3, 0, 2, 4)
    return apart.reshape(heads.batch * heads.length, -1)
