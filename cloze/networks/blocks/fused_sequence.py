"""The parts of an encoder-decoder's layer as single autograd functions: the path of a CPU.

As `fused.py`, for what those layers have beyond the plain ones: attention to another sequence, norms by root mean square,
maps without biases, heads of any width, numbers added to the scores that are learned themselves, dropout between the two
maps. Dropout's scales are folded into the weights behind it; a ReLU keeps one tensor, its output, for the way back.

Differs: under bfloat16 the residual stream and the inverse root mean squares are bfloat16, where autocast alone would keep
them in float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import Places, keep_
from cloze.networks.blocks.fused import (
    Half,
    _activate,
    _activate_backward,
    _bias_gradient,
    _cast,
    _norm,
    _norm_backward,
    _weight_gradient,
)
from cloze.networks.blocks.norm import RootMeanSquare


class Sequences(NamedTuple):
    """Attention's own numbers: rows, queries and keys per row, heads, scale of the scores; dropout of the weights; the flat
    places of the states in their rows where padding is left out."""

    batch: int
    queries: int
    keys: int
    heads: int
    share: float
    keep: Tensor | None
    scale: float
    asking: Tensor | None = None
    read: Tensor | None = None


class Real(NamedTuple):
    """The tokens of rows (B, L) that are not padding, in order: row and position of each, and its flat place, (M,)."""

    places: Places
    flat: Tensor
    batch: int
    length: int

    @classmethod
    def of(cls, block: Tensor) -> Real:
        """Of blocks (B, L), 0 at padding."""
        flat = (block > 0).flatten().nonzero().view(-1)
        return cls(Places(flat // block.shape[1], flat % block.shape[1]), flat, *block.shape)

    def gather(self, x: Tensor) -> Tensor:
        """(B, L, D) to (M, D)."""
        return x.flatten(0, 1).index_select(0, self.flat)

    def spread(self, rows: Tensor) -> Tensor:
        """(M, D) to (B, L, D), zero at padding."""
        made = rows.new_zeros(self.batch * self.length, rows.shape[1]).index_copy(0, self.flat, rows)
        return made.view(self.batch, self.length, -1)


def simple(norm: nn.Module, pre: bool, *linears: nn.Module | None) -> bool:
    """Whether these are untouched linear maps and a norm that the functions know: a hook or a replacement must be called."""
    modules = [module for module in (norm, *linears) if module is not None]
    known = all(type(m) is nn.Linear for m in modules[1:])
    known = known and (type(norm) is nn.LayerNorm and norm.bias is not None or type(norm) is RootMeanSquare and pre)
    return known and not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in modules)


def _enter(x: Tensor, gain: Tensor, offset: Tensor | None, half: Half) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What the maps read, and the statistics of the norm."""
    if not half.pre:
        return x, None, None
    if offset is not None:
        return _norm(x, gain, offset, half.epsilon)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    mean = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=wide).square_().div_(x.shape[1])
    spread = mean.add_(half.epsilon).rsqrt_().to(x.dtype)
    return (x * spread).mul_(gain.to(x.dtype)), None, spread


def _leave(
    d_read: Tensor, gradient: Tensor, x: Tensor, mean: Tensor | None, spread: Tensor, gain: Tensor, offset: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Back through a norm before: the gradients of x with that of the residual, of gain and offset."""
    if offset is not None:
        assert mean is not None  # a layer norm has both
        d_x, d_gain, d_offset = _norm_backward(d_read, x, mean, spread, gain, offset)
        return d_x.add_(gradient), d_gain, d_offset
    even = x * spread
    d_gain = _bias_gradient(d_read * even, gain, 1.0)
    d_even = d_read.mul_(gain.to(d_read.dtype))
    along = (d_even * even).sum(1, keepdim=True).div_(-x.shape[1])
    return torch.addcmul(gradient, d_even.addcmul_(even, along), spread), d_gain, None


def _columns(gradient: Tensor, like: Tensor | None, scale: float = 1.0) -> Tensor | None:
    """Column sums as the gradient of a bias, None where there is none."""
    return None if like is None else _bias_gradient(gradient, like, scale)


def _linear(x: Tensor, w: Tensor, b: Tensor | None, scale: float = 1.0) -> Tensor:
    """x @ wᵀ · scale + b in the dtype of x."""
    cast = _cast(w, x.dtype, scale)
    return x @ cast.t() if b is None else torch.addmm(b.to(x.dtype), x, cast.t())


def _apart(x: Tensor, kinds: int, length: int, sizes: Sequences, places: Tensor | None) -> Tensor:
    """(B·L, kinds·H·W), or the rows of these at places, to (kinds, B·H, L, W)."""
    if places is not None:
        x = x.new_zeros(sizes.batch * length, x.shape[1]).index_copy_(0, places, x)
    split = x.view(sizes.batch, length, kinds, sizes.heads, -1).permute(2, 0, 3, 1, 4).contiguous()
    return split.view(kinds, sizes.batch * sizes.heads, length, -1)


def _beside(x: Tensor, sizes: Sequences, places: Tensor | None) -> Tensor:
    """(kinds, B·H, L, W) to (B·L, kinds·H·W), or to the rows of these at places."""
    kinds, _, length, width = x.shape
    split = x.view(kinds, sizes.batch, sizes.heads, length, width).permute(1, 3, 0, 2, 4)
    rows = split.reshape(sizes.batch * length, -1)
    return rows if places is None else rows.index_select(0, places)


def _asking(w: Tensor, inside: int, share: float) -> Tensor:
    """A stack of maps with the scale of the scores in its first `inside` rows, those of the queries; a new tensor."""
    scaled = w.clone()
    scaled[:inside].mul_(share)
    return scaled


class Attend(torch.autograd.Function):
    """x + drop(out(attention(x, source))) with a norm before or after: rows (B·Q, D), and (B·S, D) of a source,
    or of either those that are not padding.

    Without `source`, `w` stacks query, key and value; with it `w` makes queries and `w_memory` stacks key and value.
    `added` joins the scores, (B or 1, H or 1, Q or 1, K), and may be learned; offset None: root mean square.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Tensor | None, w: Tensor, b: Tensor | None, w_memory: Tensor | None,
        b_memory: Tensor | None, w_out: Tensor, b_out: Tensor | None, gain: Tensor, offset: Tensor | None,
        added: Tensor | None, sizes: Sequences, half: Half,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            read, mean, spread = _enter(x, gain, offset, half)
            inside = w_out.shape[1]
            w_read = _asking(w, inside, sizes.share)
            b_read = None if b is None else _asking(b, inside, sizes.share)
            made = _apart(_linear(read, w_read, b_read), 3 if source is None else 1, sizes.queries, sizes, sizes.asking)
            query = made[0]
            if source is None:
                key, value = made[1], made[2]
            else:
                assert w_memory is not None  # comes with a source
                key, value = _apart(_linear(source, w_memory, b_memory), 2, sizes.keys, sizes, sizes.read)
            scores = torch.bmm(query, key.transpose(1, 2))
            if added is not None:
                scores.view(sizes.batch, sizes.heads, sizes.queries, -1).add_(added)
            shares = torch.softmax(scores, dim=-1)
            used = shares if sizes.keep is None else keep_(scores.copy_(shares), sizes.keep.view_as(scores))
            context = _beside(torch.bmm(used, value)[None], sizes, sizes.asking)
            changed = _linear(context, w_out, b_out, sizes.scale)
            y, normed, mean, spread = _join(x, changed, gain, offset, half, mean, spread)
        ctx.save_for_backward(
            normed, read, source, mean, spread, query, key, value, shares, used, context, w, b, w_memory, b_memory, w_out,
            b_out, gain, offset, added,
        )
        ctx.sizes, ctx.half = sizes, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            normed, read, source, mean, spread, query, key, value, shares, used, context, w, b, w_memory, b_memory, w_out,
            b_out, gain, offset, added,
        ) = ctx.saved_tensors
        sizes: Sequences = ctx.sizes
        half: Half = ctx.half
        gradient, through, d_gain, d_offset = _part(gradient, normed, mean, spread, gain, offset, half)
        d_w_out = _weight_gradient(through, context, w_out, half.scale * sizes.scale)
        d_b_out = _columns(through, b_out, half.scale)
        d_rows = through @ _cast(w_out, through.dtype, half.scale * sizes.scale)
        d_context = _apart(d_rows, 1, sizes.queries, sizes, sizes.asking)[0]
        d_scores, d_asked, d_memory = _attention_backward(d_context, query, key, value, shares, used, source is None, sizes)
        inside = w_out.shape[1]
        d_w = _asking(_weight_gradient(d_asked, read, w, 1.0), inside, sizes.share)
        d_b = None if b is None else _asking(_bias_gradient(d_asked, b, 1.0), inside, sizes.share)
        w_cast = _asking(w, inside, sizes.share).to(read.dtype)
        if half.pre:
            d_x, d_gain, d_offset = _leave(d_asked @ w_cast, gradient, normed, mean, spread, gain, offset)
        else:
            d_x = gradient.addmm_(d_asked, w_cast)
        d_source = d_w_memory = d_b_memory = None
        if d_memory is not None:
            d_source = d_memory @ w_memory.to(read.dtype)
            d_w_memory, d_b_memory = _weight_gradient(d_memory, source, w_memory, 1.0), _columns(d_memory, b_memory)
        d_added = _added_gradient(d_scores, added, sizes) if ctx.needs_input_grad[10] else None
        return (
            d_x, d_source, d_w, d_b, d_w_memory, d_b_memory, d_w_out, d_b_out, d_gain, d_offset, d_added, None, None
        )


def _join(
    x: Tensor, changed: Tensor, gain: Tensor, offset: Tensor | None, half: Half, mean: Tensor | None, spread: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Dropout, the residual and a norm after: the output, what the norm read, and its statistics."""
    if half.keep is not None:
        keep_(changed, half.keep)
    y = torch.add(x, changed, alpha=half.scale, out=changed)
    if half.pre:
        return y, x, mean, spread
    assert offset is not None  # a norm after is a layer norm
    after, mean, spread = _norm(y, gain, offset, half.epsilon)
    return after, y, mean, spread


def _part(
    gradient: Tensor, normed: Tensor, mean: Tensor, spread: Tensor, gain: Tensor, offset: Tensor, half: Half
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Back through `_join`: the gradient of the residual, that of what was added to it (not scaled), of gain and offset."""
    d_gain = d_offset = None
    gradient = gradient.contiguous()
    if not half.pre:
        gradient, d_gain, d_offset = _norm_backward(gradient, normed, mean, spread, gain, offset)
    through = gradient if half.keep is None else keep_(gradient.clone(), half.keep)
    return gradient, through, d_gain, d_offset


def _attention_backward(
    d_context: Tensor, query: Tensor, key: Tensor, value: Tensor, shares: Tensor, used: Tensor, own: bool, sizes: Sequences
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the scores and of the projections' outputs, rows (B·Q, ·): all three in one, or queries and the rest."""
    d_shares = torch.bmm(d_context, value.transpose(1, 2))
    if sizes.keep is not None:
        keep_(d_shares, sizes.keep.view_as(d_shares))
    d_scores = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype)
    stacked = torch.empty((3 if own else 2, *key.shape), dtype=key.dtype)
    torch.bmm(used.transpose(1, 2), d_context, out=stacked[-1])
    torch.bmm(d_scores.transpose(1, 2), query, out=stacked[-2])
    if own:
        torch.bmm(d_scores, key, out=stacked[0])
        return d_scores, _beside(stacked, sizes, sizes.asking), None
    d_query = _beside(torch.bmm(d_scores, key)[None], sizes, sizes.asking)
    return d_scores, d_query, _beside(stacked, sizes, sizes.read)


def _added_gradient(d_scores: Tensor, added: Tensor, sizes: Sequences) -> Tensor:
    """The gradient of what joined the scores, summed over what it was spread over."""
    if added.shape[0] == 1 and sizes.batch > 1:  # rows in one product: accumulated in float32
        rows = d_scores.view(sizes.batch, -1)
        d_scores = rows.new_full((1, sizes.batch), 1.0) @ rows
    return d_scores.view(-1, sizes.heads, sizes.queries, sizes.keys).sum_to_size(added.shape)


class Feed(torch.autograd.Function):
    """x + drop(outer(drop(activate(inner(x))))) with a norm before or after, on rows (N, D). `keep` and `scale` are those of
    the dropout between the maps; offset None: root mean square."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, gain: Tensor,
        offset: Tensor | None, activation: str, keep: Tensor | None, scale: float, half: Half,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            read, mean, spread = _enter(x, gain, offset, half)
            hidden = _linear(read, w1, b1)
            active = hidden.relu_() if activation == "relu" else _activate(hidden, activation)
            if keep is not None:
                keep_(active, keep)
            y, normed, mean, spread = _join(x, _linear(active, w2, b2, scale), gain, offset, half, mean, spread)
        before = None if activation == "relu" else hidden  # what a ReLU let through says where it did
        ctx.save_for_backward(normed, read, mean, spread, before, active, keep, w1, b1, w2, b2, gain, offset)
        ctx.activation, ctx.scale, ctx.half = activation, scale, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normed, read, mean, spread, hidden, active, keep, w1, b1, w2, b2, gain, offset = ctx.saved_tensors
        half: Half = ctx.half
        scale = ctx.scale * half.scale
        gradient, through, d_gain, d_offset = _part(gradient, normed, mean, spread, gain, offset, half)
        d_w2, d_b2 = _weight_gradient(through, active, w2, scale), _columns(through, b2, half.scale)
        d_active = through @ _cast(w2, through.dtype, scale)
        if hidden is None:
            d_hidden = torch.ops.aten.threshold_backward(d_active, active, 0)
        else:
            d_hidden = _activate_backward(d_active if keep is None else keep_(d_active, keep), hidden, ctx.activation)
        w_cast = w1.to(read.dtype)
        d_w1 = _weight_gradient(d_hidden, read, w1, 1.0)
        d_b1 = _columns(d_hidden, b1)
        if half.pre:
            d_x, d_gain, d_offset = _leave(d_hidden @ w_cast, gradient, normed, mean, spread, gain, offset)
        else:
            d_x = gradient.addmm_(d_hidden, w_cast)
        return d_x, d_w1, d_b1, d_w2, d_b2, d_gain, d_offset, None, None, None, None
