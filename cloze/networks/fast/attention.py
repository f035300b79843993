"""Attention with its residual connection and norm as one autograd function.

As in `residual.py`, for attention to the same sequence or to another, heads of any width, numbers added to the scores that may
be learned, and queries at some positions alone. Where padding is left out or few tokens ask, heads are taken apart and put
together by one look-up of rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.attention import Attention, AttentionInputs, Reading
from cloze.networks.blocks.buckets import Bias
from cloze.networks.blocks.dropout import Dropout, keep_
from cloze.networks.blocks.linear import untouched
from cloze.networks.blocks.norm_place import NormPlace
from cloze.networks.blocks.projections import Across, Stacked
from cloze.networks.blocks.relation import NONE
from cloze.networks.blocks.selected import Selected
from cloze.networks.fast.residual import (
    Half,
    bias_gradient,
    columns,
    enter,
    join,
    leave,
    leaving,
    linear,
    offset_of,
    simple,
    unjoin,
    weight_gradient,
)
from cloze.networks.fast.softmax import soften


def fits(reading: Reading, norm: nn.Module, place: NormPlace, x: Tensor) -> bool:
    """Whether the function knows the norm, the attention and all that it is given."""
    attention, given = reading.attention, reading.given
    if type(attention) is not Attention or not untouched(attention):
        return False
    if type(given.relation) is not Bias and given.relation is not NONE or given.seen.may_see_nothing:
        return False
    if any(part is not None for part in (given.past, given.cache, given.projected, given.gates, given.record)):
        return False
    if given.at is not None and (given.source is not None or len(given.at.flat) == 0):
        return False
    maps = attention.projecting
    if type(maps) is Stacked:
        return given.source is None and simple(norm, place, attention.projections, attention.out)
    return type(maps) is Across and simple(norm, place, attention.query, attention.memory, attention.out)


def attention(x: Tensor, reading: Reading, norm: Any, dropout: Dropout, place: NormPlace) -> Tensor:
    """The residual connection around attention: states (B, L, D) or rows (M, D)."""
    module, given = reading.attention, reading.given
    rows, source, weights = _operands(x, reading, norm, place)
    asking = given.asking
    batch, queries = x.shape[:2] if asking is None else (asking.batch, asking.across)
    read = given.rows if given.source is None else given.source_rows
    keys = read.across if read is not None else (x if given.source is None else given.source).shape[1]
    keep, scale = None, 1.0
    if reading.dropout.active:
        columns = None if given.at is None else given.at.columns
        length = queries if given.at is None else given.at.length
        keep = reading.dropout.keep_scores(batch, module.heads, length, keys, x.device, columns)
        scale = reading.dropout.scale
    made = Attend.apply(
        rows, source, *weights, module.out.weight, module.out.bias, norm.weight, offset_of(norm),
        _added(given, x.dtype, keys), Sequences(batch, queries, keys, module.heads, module.scale, keep, scale, asking, read),
        Half.of(norm, place, dropout, x.shape if given.at is None else rows.shape, given.positions),
    )
    return made.view(x.shape if given.at is None else made.shape)


def _operands(x: Tensor, reading: Reading, norm: Any, place: NormPlace) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
    """The rows that ask, those that are read where they are others, and weights and biases that make queries and the rest."""
    module, given = reading.attention, reading.given
    rows = x.reshape(-1, x.shape[-1])
    if given.source is not None:
        source = given.source.to(x.dtype)
        asks, reads = module.query, module.memory
        return rows, source.reshape(-1, source.shape[-1]), [asks.weight, asks.bias, reads.weight, reads.bias]
    made = module.projections
    if given.at is None:
        return rows, None, [made.weight, made.bias, None, None]
    source = norm(rows).to(x.dtype) if place.pre else rows
    (w, w_memory), (b, b_memory) = (
        (None, None) if whole is None else (whole[: module.inside], whole[module.inside :]) for whole in (made.weight, made.bias)
    )
    return given.take(x), source, [w, b, w_memory, b_memory]


def _added(given: AttentionInputs, dtype: torch.dtype, keys: int) -> Tensor | None:
    """What joins the scores: the numbers of a relation and what hides."""
    mask = given.seen.bias(dtype, keys, torch.device("cpu"))
    return given.relation.joined(mask, dtype) if isinstance(given.relation, Bias) else mask


class Sequences(NamedTuple):
    """Attention's own numbers: rows, queries and keys per row, heads, scale of the scores; dropout of the weights; the
    tokens that ask and those that are read where padding is left out."""

    batch: int
    queries: int
    keys: int
    heads: int
    score_scale: float
    keep: Tensor | None
    scale: float
    asking: Selected | None = None
    read: Selected | None = None


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
            read, mean, spread = enter(x, gain, offset, half)
            dtype, inside = x.dtype, w_out.shape[1]
            w_cast = _scaled_queries(w, inside, sizes.score_scale).to(dtype)
            b_cast = None if b is None else _scaled_queries(b, inside, sizes.score_scale).to(dtype)
            made = _apart(linear(read, w_cast, b_cast), 3 if source is None else 1, sizes.queries, sizes, sizes.asking)
            query, memory_cast = made[0], None
            if source is None:
                key, value = made[1], made[2]
            else:
                assert w_memory is not None  # comes with a source
                memory_cast, b_cast = w_memory.to(dtype), None if b_memory is None else b_memory.to(dtype)
                key, value = _apart(linear(source, memory_cast, b_cast), 2, sizes.keys, sizes, sizes.read)
            scores = torch.bmm(query, key.transpose(1, 2))
            probabilities, used = soften(scores, added, sizes.keep, sizes.heads)
            context = _beside(torch.bmm(used, value)[None], sizes, sizes.asking)
            out_cast, b_cast = leaving(w_out, b_out, sizes.scale, half, dtype)
            y, normed, mean, spread = join(x, linear(context, out_cast, b_cast), gain, offset, half, mean, spread)
        ctx.save_for_backward(
            normed, read, source, mean, spread, query, key, value, probabilities, used, context, w, w_cast, b, w_memory,
            memory_cast, b_memory, w_out, out_cast, b_out, gain, offset, added,
        )
        ctx.sizes, ctx.half = sizes, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            normed, read, source, mean, spread, query, key, value, probabilities, used, context, w, w_cast, b, w_memory,
            memory_cast, b_memory, w_out, out_cast, b_out, gain, offset, added,
        ) = ctx.saved_tensors
        sizes: Sequences = ctx.sizes
        half: Half = ctx.half
        gradient, through, d_gain, d_offset = unjoin(gradient, normed, mean, spread, gain, offset, half)
        d_w_out = weight_gradient(through, context, w_out, half.scale * sizes.scale)
        d_b_out = columns(through, b_out, half.scale)
        d_context = _apart(_context_gradient(through, out_cast, sizes), 1, sizes.queries, sizes, sizes.asking)[0]
        d_scores, d_made, d_memory = _attention_backward(d_context, query, key, value, probabilities, used, source is None, sizes)
        inside = w_out.shape[1]
        d_w = _query_gradient(weight_gradient(d_made, read, w, 1.0), inside, sizes.score_scale)
        d_b = None if b is None else _query_gradient(bias_gradient(d_made, b, 1.0), inside, sizes.score_scale)
        if half.pre:
            d_x, d_gain, d_offset = leave(d_made @ w_cast, gradient, normed, mean, spread, gain, offset)
        else:
            d_x = gradient.addmm_(d_made, w_cast)
        d_source = d_w_memory = d_b_memory = None
        if d_memory is not None:
            d_source = d_memory @ memory_cast
            d_w_memory, d_b_memory = weight_gradient(d_memory, source, w_memory, 1.0), columns(d_memory, b_memory)
        d_added = _added_gradient(d_scores, added, sizes) if ctx.needs_input_grad[10] else None
        return (
            d_x, d_source, d_w, d_b, d_w_memory, d_b_memory, d_w_out, d_b_out, d_gain, d_offset, d_added, None, None
        )


def _apart(x: Tensor, kinds: int, length: int, sizes: Sequences, real: Selected | None) -> Tensor:
    """(B·L, kinds·H·W), or the rows of these at real tokens, to (kinds, B·H, L, W)."""
    if real is not None:
        return real.apart(x, kinds, sizes.heads)
    split = x.view(sizes.batch, length, kinds, sizes.heads, -1).permute(2, 0, 3, 1, 4).contiguous()
    return split.view(kinds, sizes.batch * sizes.heads, length, -1)


def _beside(x: Tensor, sizes: Sequences, real: Selected | None) -> Tensor:
    """(kinds, B·H, L, W) to (B·L, kinds·H·W), or to the rows of these at real tokens."""
    if real is not None:
        return real.together(x, sizes.heads)
    kinds, _, length, width = x.shape
    split = x.view(kinds, sizes.batch, sizes.heads, length, width).permute(1, 3, 0, 2, 4)
    return split.reshape(sizes.batch * length, -1)


def _scaled_queries(w: Tensor, inside: int, scale: float) -> Tensor:
    """A stack of maps, or their biases, with the scale of the scores in its first `inside` rows, those of the queries."""
    return w if scale == 1.0 else torch.cat([w[:inside] * scale, w[inside:]])


def _query_gradient(gradient: Tensor, inside: int, scale: float) -> Tensor:
    """Back through `_scaled_queries`, in place."""
    if scale != 1.0:
        gradient[:inside].mul_(scale)
    return gradient


def _context_gradient(through: Tensor, out_cast: Tensor, sizes: Sequences) -> Tensor:
    """The gradient of what the heads made, (B·Q, H·W); without padding one row of zeros follows, which padding gets."""
    if sizes.asking is None:
        return through @ out_cast
    made = through.new_empty(len(through) + 1, out_cast.shape[1])
    torch.mm(through, out_cast, out=made[:-1])
    made[-1] = 0
    return made


def _attention_backward(
    d_context: Tensor, query: Tensor, key: Tensor, value: Tensor, probabilities: Tensor, used: Tensor, own: bool, sizes: Sequences
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the scores and of the projections' outputs, rows (B·Q, ·): all three in one, or queries and the rest."""
    d_probabilities = torch.bmm(d_context, value.transpose(1, 2))
    if sizes.keep is not None:
        keep_(d_probabilities, sizes.keep.view_as(d_probabilities))
    d_scores = torch._softmax_backward_data(d_probabilities, probabilities, -1, probabilities.dtype, grad_input=d_probabilities)
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
