"""Attention with its residual and norm as a single autograd function: the path of a CPU.

As `fused.py`, for attention to the same sequence or to another, heads of any width, numbers added to the scores that may
be learned, and queries at a few positions alone. Where padding is left out or few positions ask, heads are taken apart and put
together by one look-up of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import Positions, keep_
from cloze.networks.blocks.even import rows_to_add
from cloze.networks.blocks.fused import (
    Half,
    _bias_gradient,
    _columns,
    _enter,
    _join,
    _leave,
    _leaving,
    _part,
    _weight_gradient,
    linear,
)
from cloze.networks.blocks.softmax import soften

_SLOTS = 8  # positions that ask in a row are a multiple of this


@dataclass(frozen=True)
class Real:
    """The tokens of rows (B, L) that are not padding, in order: row and position of each, and its flat place, (M,).

    Those behind the first `count` repeat the last, to make M one of few numbers: they are never read, and get no gradient.
    """

    positions: Positions
    flat: Tensor
    batch: int
    length: int
    count: int
    _indices: dict[tuple[str, int, int], Tensor] = field(default_factory=dict, repr=False)  # of all layers of a stack

    @classmethod
    def of(cls, block: Tensor) -> Real:
        """Of blocks (B, L), 0 at padding."""
        flat = (block > 0).flatten().nonzero().view(-1)
        count = len(flat)
        flat = torch.cat([flat, flat[-1:].expand(rows_to_add(count))])
        batch, length = block.shape
        return cls(Positions(flat // length, flat % length), flat, batch, length, count)

    @classmethod
    def of_positions(cls, positions: Positions, batch: int) -> tuple[Real, Tensor]:
        """Positions that ask, ascending and distinct, side by side in rows of their own, (B, K); and the position that each of
        these had, that of the row's first token where a row has fewer."""
        counts = torch.bincount(positions.row, minlength=batch)
        most = -(-max(1, int(counts.max())) // _SLOTS) * _SLOTS
        slot = torch.arange(len(positions.row)) - (counts.cumsum(0) - counts)[positions.row]
        flat = positions.row * most + slot
        columns = torch.zeros(batch * most, dtype=torch.long).index_copy_(0, flat, positions.column)
        return cls(Positions(positions.row, slot), flat, batch, most, len(flat)), columns.view(batch, most)

    def gather(self, x: Tensor) -> Tensor:
        """(B, L, D) to (M, D)."""
        return x.flatten(0, 1).index_select(0, self.flat)

    def spread(self, rows: Tensor) -> Tensor:
        """(M, D) to (B, L, D), zero at padding."""
        made = rows.new_zeros(self.batch * self.length, rows.shape[1])
        made = made.index_copy(0, self.flat[: self.count], rows[: self.count])
        return made.view(self.batch, self.length, -1)

    def apart(self, x: Tensor, kinds: int, heads: int) -> Tensor:
        """(M, kinds·H·W) to (kinds, B·H, L, W); padding holds what the last token does.

        With one row more than tokens, (M + 1, ·), padding holds that row.
        """
        key = ("apart" if len(x) == len(self.flat) else "padded", kinds, heads)
        if key not in self._indices:
            row = self.flat.new_full((self.batch * self.length,), len(x) - 1)
            row[self.flat[: self.count]] = torch.arange(self.count)
            index = row.view(1, self.batch, 1, self.length) * (kinds * heads)
            index = index + torch.arange(kinds).view(-1, 1, 1, 1) * heads + torch.arange(heads).view(-1, 1)
            self._indices[key] = index.flatten().to(torch.int32)
        made = x.view(len(x) * kinds * heads, -1).index_select(0, self._indices[key])
        return made.view(kinds, self.batch * heads, self.length, -1)

    def beside(self, x: Tensor, heads: int) -> Tensor:
        """(kinds, B·H, L, W) to (M, kinds·H·W), what `apart` takes apart; zeros behind the first `count`."""
        kinds, _, length, width = x.shape
        key = ("beside", kinds, heads)
        if key not in self._indices:
            first = self.positions.row * (heads * length) + self.positions.column
            index = first.view(-1, 1, 1) + torch.arange(kinds).view(-1, 1) * (self.batch * heads * length)
            self._indices[key] = (index + torch.arange(heads) * length).flatten().to(torch.int32)
        made = x.view(-1, width).index_select(0, self._indices[key]).view(-1, kinds * heads * width)
        made[self.count :] = 0
        return made


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
            made = _apart(linear(read, w_cast, b_cast), 3 if source is None else 1, sizes.queries, sizes, sizes.asking)
            query, memory_cast = made[0], None
            if source is None:
                key, value = made[1], made[2]
            else:
                assert w_memory is not None  # comes with a source
                memory_cast, b_cast = w_memory.to(dtype), None if b_memory is None else b_memory.to(dtype)
                key, value = _apart(linear(source, memory_cast, b_cast), 2, sizes.keys, sizes, sizes.read)
            scores = torch.bmm(query, key.transpose(1, 2))
            shares, used = soften(scores, added, sizes.keep, sizes.heads)
            context = _beside(torch.bmm(used, value)[None], sizes, sizes.asking)
            out_cast, b_cast = _leaving(w_out, b_out, sizes.scale, half, dtype)
            y, normed, mean, spread = _join(x, linear(context, out_cast, b_cast), gain, offset, half, mean, spread)
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


def _context_gradient(through: Tensor, out_cast: Tensor, sizes: Sequences) -> Tensor:
    """The gradient of what the heads made, (B·Q, H·W); without padding one row of zeros follows, which padding gets."""
    if sizes.asking is None:
        return through @ out_cast
    made = through.new_empty(len(through) + 1, out_cast.shape[1])
    torch.mm(through, out_cast, out=made[:-1])
    made[-1] = 0
    return made


def _attention_backward(
    d_context: Tensor, query: Tensor, key: Tensor, value: Tensor, shares: Tensor, used: Tensor, own: bool, sizes: Sequences
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of the scores and of the projections' outputs, rows (B·Q, ·): all three in one, or queries and the rest."""
    d_shares = torch.bmm(d_context, value.transpose(1, 2))
    if sizes.keep is not None:
        keep_(d_shares, sizes.keep.view_as(d_shares))
    d_scores = torch._softmax_backward_data(d_shares, shares, -1, shares.dtype, grad_input=d_shares)
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
