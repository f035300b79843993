"""The parts of an encoder-decoder's layer as single autograd functions: the path of a CPU.

As `fused.py`, for what those layers have beyond the plain ones: attention to another sequence, norms by root mean square,
maps without biases, heads of any width, numbers added to the scores that are learned themselves, dropout between the two
maps. Scales of dropout and of scores are folded into the weights, which are cast once for both ways; a ReLU keeps one
tensor, its output, for the way back; where padding is left out, heads are taken apart and put together by one look-up of rows.

Differs: under bfloat16 the residual stream and the inverse root mean squares are bfloat16, where autocast alone would keep
them in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import Places, keep_, kept
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


@dataclass(frozen=True)
class Real:
    """The tokens of rows (B, L) that are not padding, in order: row and position of each, and its flat place, (M,)."""

    places: Places
    flat: Tensor
    batch: int
    length: int
    _indices: dict[tuple[str, int, int], Tensor] = field(default_factory=dict, repr=False)  # of all layers of a stack

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

    def apart(self, x: Tensor, kinds: int, heads: int) -> Tensor:
        """(M, kinds·H·W) to (kinds, B·H, L, W); padding holds what the last token does.

        With one row more than tokens, (M + 1, ·), padding holds that row.
        """
        count = len(self.flat)
        key = ("apart" if len(x) == count else "padded", kinds, heads)
        if key not in self._indices:
            row = self.flat.new_full((self.batch * self.length,), len(x) - 1)
            row[self.flat] = torch.arange(count)
            index = row.view(1, self.batch, 1, self.length) * (kinds * heads)
            index = index + torch.arange(kinds).view(-1, 1, 1, 1) * heads + torch.arange(heads).view(-1, 1)
            self._indices[key] = index.flatten().to(torch.int32)
        made = x.view(len(x) * kinds * heads, -1).index_select(0, self._indices[key])
        return made.view(kinds, self.batch * heads, self.length, -1)

    def beside(self, x: Tensor, heads: int) -> Tensor:
        """(kinds, B·H, L, W) to (M, kinds·H·W): what `apart` takes apart."""
        kinds, _, length, width = x.shape
        key = ("beside", kinds, heads)
        if key not in self._indices:
            first = self.places.row * (heads * length) + self.places.position
            index = first.view(-1, 1, 1) + torch.arange(kinds).view(-1, 1) * (self.batch * heads * length)
            self._indices[key] = (index + torch.arange(heads) * length).flatten().to(torch.int32)
        return x.view(-1, width).index_select(0, self._indices[key]).view(-1, kinds * heads * width)


class Sequences(NamedTuple):
    """Attention's own numbers: rows, queries and keys per row, heads, scale of the scores; dropout of the weights; the
    tokens that ask and those that are read where padding is left out."""

    batch: int
    queries: int
    keys: int
    heads: int
    share: float
    keep: Tensor | None
    scale: float
    asking: Real | None = None
    read: Real | None = None


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


def _linear(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """x @ wᵀ + b, all of one dtype."""
    if b is None:
        return x @ w.t()
    if x.dtype == torch.bfloat16 and len(x) and _adds_bias():  # `addmm` writes the bias out first
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, w, b, "none", [], "")
        return made
    return torch.addmm(b, x, w.t())


@cache
def _adds_bias() -> bool:
    """Whether oneDNN is there and multiplies bfloat16, and adds a bias while it does."""
    asked = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None) if torch.backends.mkldnn.is_available() else None
    return asked is not None and hasattr(torch.ops.mkldnn, "_linear_pointwise") and bool(asked())


def _apart(x: Tensor, kinds: int, length: int, sizes: Sequences, real: Real | None) -> Tensor:
    """(B·L, kinds·H·W), or the rows of these at real tokens, to (kinds, B·H, L, W)."""
    if real is not None:
        return real.apart(x, kinds, sizes.heads)
    split = x.view(sizes.batch, length, kinds, sizes.heads, -1).permute(2, 0, 3, 1, 4).contiguous()
    return split.view(kinds, sizes.batch * sizes.heads, length, -1)


def _beside(x: Tensor, sizes: Sequences, real: Real | None) -> Tensor:
    """(kinds, B·H, L, W) to (B·L, kinds·H·W), or to the rows of these at real tokens."""
    if real is not None:
        return real.beside(x, sizes.heads)
    kinds, _, length, width = x.shape
    split = x.view(kinds, sizes.batch, sizes.heads, length, width).permute(1, 3, 0, 2, 4)
    return split.reshape(sizes.batch * length, -1)


def _asking(w: Tensor, inside: int, share: float) -> Tensor:
    """A stack of maps, or their biases, with the scale of the scores in its first `inside` rows, those of the queries."""
    return w if share == 1.0 else torch.cat([w[:inside] * share, w[inside:]])


def _asking_gradient(gradient: Tensor, inside: int, share: float) -> Tensor:
    """Back through `_asking`, in place."""
    if share != 1.0:
        gradient[:inside].mul_(share)
    return gradient


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
            dtype, inside = x.dtype, w_out.shape[1]
            w_cast = _asking(w, inside, sizes.share).to(dtype)
            b_cast = None if b is None else _asking(b, inside, sizes.share).to(dtype)
            made = _apart(_linear(read, w_cast, b_cast), 3 if source is None else 1, sizes.queries, sizes, sizes.asking)
            query, memory_cast = made[0], None
            if source is None:
                key, value = made[1], made[2]
            else:
                assert w_memory is not None  # comes with a source
                memory_cast, b_cast = w_memory.to(dtype), None if b_memory is None else b_memory.to(dtype)
                key, value = _apart(_linear(source, memory_cast, b_cast), 2, sizes.keys, sizes, sizes.read)
            scores = torch.bmm(query, key.transpose(1, 2))
            if added is not None:
                scores.view(sizes.batch, sizes.heads, sizes.queries, -1).add_(added)
            shares = torch.softmax(scores, dim=-1)
            used = shares if sizes.keep is None else kept(shares, sizes.keep.view_as(scores), into=scores)
            context = _beside(torch.bmm(used, value)[None], sizes, sizes.asking)
            out_cast, b_cast = _leaving(w_out, b_out, sizes.scale, half, dtype)
            y, normed, mean, spread = _join(x, _linear(context, out_cast, b_cast), gain, offset, half, mean, spread)
        ctx.save_for_backward(
            normed, read, source, mean, spread, query, key, value, shares, used, context, w, w_cast, b, w_memory,
            memory_cast, b_memory, w_out, out_cast, b_out, gain, offset, added,
        )
        ctx.sizes, ctx.half = sizes, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            normed, read, source, mean, spread, query, key, value, shares, used, context, w, w_cast, b, w_memory,
            memory_cast, b_memory, w_out, out_cast, b_out, gain, offset, added,
        ) = ctx.saved_tensors
        sizes: Sequences = ctx.sizes
        half: Half = ctx.half
        gradient, through, d_gain, d_offset = _part(gradient, normed, mean, spread, gain, offset, half)
        d_w_out = _weight_gradient(through, context, w_out, half.scale * sizes.scale)
        d_b_out = _columns(through, b_out, half.scale)
        d_context = _apart(_context_gradient(through, out_cast, sizes), 1, sizes.queries, sizes, sizes.asking)[0]
        d_scores, d_asked, d_memory = _attention_backward(d_context, query, key, value, shares, used, source is None, sizes)
        inside = w_out.shape[1]
        d_w = _asking_gradient(_weight_gradient(d_asked, read, w, 1.0), inside, sizes.share)
        d_b = None if b is None else _asking_gradient(_bias_gradient(d_asked, b, 1.0), inside, sizes.share)
        if half.pre:
            d_x, d_gain, d_offset = _leave(d_asked @ w_cast, gradient, normed, mean, spread, gain, offset)
        else:
            d_x = gradient.addmm_(d_asked, w_cast)
        d_source = d_w_memory = d_b_memory = None
        if d_memory is not None:
            d_source = d_memory @ memory_cast
            d_w_memory, d_b_memory = _weight_gradient(d_memory, source, w_memory, 1.0), _columns(d_memory, b_memory)
        d_added = _added_gradient(d_scores, added, sizes) if ctx.needs_input_grad[10] else None
        return (
            d_x, d_source, d_w, d_b, d_w_memory, d_b_memory, d_w_out, d_b_out, d_gain, d_offset, d_added, None, None
        )


def _leaving(
    w: Tensor, b: Tensor | None, scale: float, half: Half, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """The map before the residual with the scale of the dropout behind it and, in its weight, of that before it."""
    return _cast(w, dtype, scale * half.scale), None if b is None else _cast(b, dtype, half.scale)


def _context_gradient(through: Tensor, out_cast: Tensor, sizes: Sequences) -> Tensor:
    """The gradient of what the heads made, (B·Q, H·W); without padding one row of zeros follows, which padding gets."""
    if sizes.asking is None:
        return through @ out_cast
    made = through.new_empty(len(through) + 1, out_cast.shape[1])
    torch.mm(through, out_cast, out=made[:-1])
    made[-1] = 0
    return made


def _join(
    x: Tensor, changed: Tensor, gain: Tensor, offset: Tensor | None, half: Half, mean: Tensor | None, spread: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Dropout, the residual and a norm after: the output, what the norm read, and its statistics."""
    if half.keep is not None:
        keep_(changed, half.keep)
    y = changed.add_(x)
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
    through = gradient if half.keep is None else kept(gradient, half.keep)
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
            dtype = x.dtype
            w1_cast = w1.to(dtype)
            hidden = _linear(read, w1_cast, None if b1 is None else b1.to(dtype))
            active = hidden.relu_() if activation == "relu" else _activate(hidden, activation)
            if keep is not None:
                keep_(active, keep)
            w2_cast, b2_cast = _leaving(w2, b2, scale, half, dtype)
            y, normed, mean, spread = _join(x, _linear(active, w2_cast, b2_cast), gain, offset, half, mean, spread)
        before = None if activation == "relu" else hidden  # what a ReLU let through says where it did
        ctx.save_for_backward(
            normed, read, mean, spread, before, active, keep, w1, w1_cast, b1, w2, w2_cast, b2, gain, offset
        )
        ctx.activation, ctx.scale, ctx.half = activation, scale, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            normed, read, mean, spread, hidden, active, keep, w1, w1_cast, b1, w2, w2_cast, b2, gain, offset
        ) = ctx.saved_tensors
        half: Half = ctx.half
        scale = ctx.scale * half.scale
        gradient, through, d_gain, d_offset = _part(gradient, normed, mean, spread, gain, offset, half)
        d_w2, d_b2 = _weight_gradient(through, active, w2, scale), _columns(through, b2, half.scale)
        d_active = through @ w2_cast
        if hidden is None:
            d_hidden = torch.ops.aten.threshold_backward(d_active, active, 0)
        else:
            d_hidden = _activate_backward(d_active if keep is None else keep_(d_active, keep), hidden, ctx.activation)
        d_w1, d_b1 = _weight_gradient(d_hidden, read, w1, 1.0), _columns(d_hidden, b1)
        if half.pre:
            d_x, d_gain, d_offset = _leave(d_hidden @ w1_cast, gradient, normed, mean, spread, gain, offset)
        else:
            d_x = gradient.addmm_(d_hidden, w1_cast)
        return d_x, d_w1, d_b1, d_w2, d_b2, d_gain, d_offset, None, None, None, None
