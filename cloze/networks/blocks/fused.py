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


class Asked(NamedTuple):
    """The places where a layer's output is wanted, and the queries that are made for them.

    `places` (M,): flat, ascending, distinct. `slots` (B*K,): the flat place of each query, K per row, filled up with the
    row's first place; `chosen` (M,): which slot holds each place.
    """

    places: Tensor
    slots: Tensor
    chosen: Tensor


class Heads(NamedTuple):
    """Attention's own numbers: rows, positions, queries per row, heads; the added mask; dropout of weights; what is asked."""

    batch: int
    length: int
    queries: int
    heads: int
    bias: Tensor | None
    keep: Tensor | None
    scale: float
    asked: Asked | None


def ask(row: Tensor, position: Tensor, batch: int, length: int) -> tuple[Asked, Tensor]:
    """Lay out places as queries: the lay-out, and the position of every query, (B, K). Rows ascend."""
    counts = torch.bincount(row, minlength=batch)
    most = max(1, int(counts.max()))
    chosen = row * most + torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
    positions = torch.zeros(batch * most, dtype=torch.long).index_copy_(0, chosen, position)
    slots = (torch.arange(batch) * length).repeat_interleave(most) + positions
    return Asked(row * length + position, slots, chosen), positions.view(batch, most)


def plain(*modules: nn.Module) -> bool:
    """Whether these are untouched linear maps and norms with biases: a hook or a replacement must be called, not bypassed."""
    return all(
        type(m) in (nn.Linear, nn.LayerNorm) and m.bias is not None
        and not (m._forward_hooks or m._forward_pre_hooks or m._backward_hooks)
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
    """x + drop(out(attention(x))) with a norm before or after, on rows (N, D) of a batch; (M, D) at asked places alone."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w: Tensor, b: Tensor, w_out: Tensor, b_out: Tensor, gain: Tensor, offset: Tensor,
        heads: Heads, half: Half,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            dtype = x.dtype
            read, mean, spread = _norm(x, gain, offset, half.epsilon) if half.pre else (x, None, None)
            w_cast, b_cast = _scaled_queries(w, b, heads.heads, dtype)
            query, key, value = _project(read, w_cast, b_cast, heads)
            scores = torch.bmm(query, key.transpose(1, 2))
            if heads.bias is not None:
                scores.view(heads.batch, heads.heads, heads.queries, -1).add_(heads.bias)
            shares = torch.softmax(scores, dim=-1)
            used = shares
            if heads.keep is not None:
                used = keep_(scores.copy_(shares), heads.keep.view_as(scores))
            context, rows = _beside(torch.bmm(used, value), heads), x
            if heads.asked is not None:
                context, rows = context.index_select(0, heads.asked.chosen), x.index_select(0, heads.asked.places)
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
        if heads.asked is not None:
            d_context = _spread(d_context, heads.asked.chosen, heads.batch * heads.queries)
            gradient = _spread(gradient, heads.asked.places, len(read))
        made = _attention_backward(_apart(d_context, heads), query, key, value, shares, used, heads)
        d_read, d_w, d_b = _project_backward(made, read, w, b, heads, None if half.pre else gradient)
        if half.pre:
            d_read, d_gain, d_offset = _norm_backward(d_read, normed, mean, spread, gain, offset)
            d_read = d_read.add_(gradient)
        return d_read, d_w, d_b, d_w_out, d_b_out, d_gain, d_offset, None, None


def _project(read: Tensor, w: Tensor, b: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B*H, K, W), keys and values (B*H, L, W), each contiguous; queries only where they are asked."""
    if heads.asked is None:
        query, key, value = _split(torch.addmm(b, read, w.t()), 3, heads.length, heads)
        return query, key, value
    width = w.shape[1]
    key, value = _split(torch.addmm(b[width:], read, w[width:].t()), 2, heads.length, heads)
    queries = torch.addmm(b[:width], read.index_select(0, heads.asked.slots), w[:width].t())
    return _split(queries, 1, heads.queries, heads)[0], key, value


def _split(x: Tensor, kinds: int, length: int, heads: Heads) -> tuple[Tensor, ...]:
    apart = x.view(heads.batch, length, kinds, heads.heads, -1).permute(2, 0, 3, 1, 4).contiguous()
    return apart.view(kinds, heads.batch * heads.heads, length, -1).unbind(0)


def _join(x: Tensor, heads: Heads) -> Tensor:
    """(kinds, B*H, L, W) to (B*L, kinds*D): what `_split` takes apart."""
    kinds, _, length, head_width = x.shape
    apart = x.view(kinds, heads.batch, heads.heads, length, head_width).permute(1, 3, 0, 2, 4)
    return apart.reshape(heads.batch * length, -1)


def _project_backward(
    made: tuple[Tensor, Tensor], read: Tensor, w: Tensor, b: Tensor, heads: Heads, into: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the input (added to `into` where it is given), the weight and the bias."""
    d_queries, d_stacked = made
    width = w.shape[1]
    w_cast, _ = _scaled_queries(w, b, heads.heads, read.dtype)
    start = 0 if heads.asked is None else width
    d_read = d_stacked @ w_cast[start:] if into is None else into.addmm_(d_stacked, w_cast[start:])
    d_w, d_b = _weight_gradient(d_stacked, read, w, 1.0), _bias_gradient(d_stacked, b, 1.0)
    if heads.asked is not None:
        asking = read.index_select(0, heads.asked.slots)
        d_w = torch.cat([_weight_gradient(d_queries, asking, w, 1.0), d_w])
        d_b = torch.cat([_bias_gradient(d_queries, b, 1.0), d_b])
        d_read.index_add_(0, heads.asked.slots, d_queries @ w_cast[:width])
    share = 1.0 / math.sqrt(width // heads.heads)
    d_w[:width].mul_(share)
    d_b[:width].mul_(share)
    return d_read, d_w, d_b


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
    """(B*H, K, W) to (B*K, H*W)."""
    return x.view(heads.batch, heads.heads, heads.queries, -1).transpose(1, 2).reshape(heads.batch * heads.queries, -1)


def _apart(x: Tensor, heads: Heads) -> Tensor:
    """(B*K, H*W) to (B*H, K, W)."""
    split = x.view(heads.batch, heads.queries, heads.heads, -1).transpose(1, 2)
    return split.reshape(heads.batch * heads.heads, heads.queries, -1)


def _spread(rows: Tensor, places: Tensor, count: int) -> Tensor:
    return rows.new_zeros(count, rows.shape[-1]).index_copy_(0, places, rows)


def _attention_backward(
    d_context: Tensor, query: Tensor, key: Tensor, value: Tensor, shares: Tensor, used: Tensor, heads: Heads
) -> tuple[Tensor, Tensor]:
    """Gradients of the projections' outputs: queries (B*K, D) and keys, values (B*L, 2D), or all in one (B*L, 3D)."""
    d_shares = torch.bmm(d_context, value.transpose(1, 2))
    if heads.keep is not None:
        keep_(d_shares, heads.keep.view_as(d_shares))
    d_scores = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype)
    first = 0 if heads.asked is None else 1
    stacked = torch.empty((3 - first, *key.shape), dtype=key.dtype)
    torch.bmm(used.transpose(1, 2), d_context, out=stacked[-1])
    torch.bmm(d_scores.transpose(1, 2), query, out=stacked[-2])
    if heads.asked is None:
        torch.bmm(d_scores, key, out=stacked[0])
        return stacked[0], _join(stacked, heads)
    return _join(torch.bmm(d_scores, key)[None], heads), _join(stacked, heads)
