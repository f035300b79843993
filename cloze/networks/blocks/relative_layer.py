"""The layer of Transformer-XL and XLNet: attention by content and by distance, over a memory and over one or two streams."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout, Positions, drop
from cloze.networks.blocks.layer import Activation, activate
from cloze.networks.blocks.relative_shift import shift, shift_at
from cloze.networks.clock import Clock
from cloze.networks.cost import CONSTANT, TRAINED, Shown, maps


class QueryPositions(NamedTuple):
    """The positions of a query stream: flat, and as a padded block of K per row. M positions in B rows."""

    at: Positions      # row and position of each, (M,)
    flat: Tensor        # row * length + position, ascending, (M,)
    cells: Tensor       # where each stands in the padded block, row * K + number in the row, (M,)
    columns: Tensor   # (B, K), 0 where there is none

    @classmethod
    def of(cls, positions: Tensor, batch: int, length: int) -> QueryPositions:
        """Distinct flat positions, in order."""
        marked = torch.zeros(batch * length, dtype=torch.bool, device=positions.device)
        marked[positions] = True
        flat = marked.nonzero().view(-1)
        row, position = flat // length, flat % length
        counts = torch.bincount(row, minlength=batch)
        most = int(counts.max()) if len(flat) else 0
        number = torch.arange(len(flat), device=flat.device) - (counts.cumsum(0) - counts)[row]
        cells = row * most + number
        columns = torch.zeros(batch * most, dtype=torch.long, device=flat.device).index_copy_(0, cells, position)
        return cls(Positions(row, position), flat, cells, columns.view(batch, most))

    def spread(self, rows: Tensor) -> Tensor:
        """(M, …) to the padded block (B, K, …), zero where there is no place."""
        batch, most = self.columns.shape
        return rows.new_zeros(batch * most, *rows.shape[1:]).index_copy(0, self.cells, rows).view(batch, most, *rows.shape[1:])


class Bearings(NamedTuple):
    """What attention knows of the row beside its tokens.

    `distances` are the sinusoids of all distances, (R, D), or (2, R, D) where rows are read in different directions: as
    they stand and negated, which `turned` (B,) chooses; `differs` says whether query and key are of different segments,
    (B, 1, Lq, Lk); `mask` what is seen, (B or 1, 1, Lq, Lk).
    """

    distances: Tensor
    mask: Tensor | None
    differs: Tensor | None = None
    turned: Tensor | None = None

    def at(self, positions: QueryPositions, mask: Tensor | None) -> Bearings:
        """The same for these positions alone, which see by a `mask` of their own."""
        row = torch.arange(len(positions.columns), device=positions.columns.device)[:, None]

        def rows(of: Tensor | None) -> Tensor | None:
            return None if of is None else of.expand(len(row), -1, -1, -1)[row, 0, positions.columns][:, None]

        return self._replace(mask=rows(mask), differs=rows(self.differs))


class Query(NamedTuple):
    """A query stream: its rows (M, D), where they stand, and their bearings."""

    rows: Tensor
    positions: QueryPositions
    bearings: Bearings


class StepDropout(Dropout):
    """Dropout in what all rows of a step share: the numbers depend on the step alone, so no deal of the rows changes them."""

    def _row_keys(self, rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        first_row, self.clock.first_row = self.clock.first_row, torch.zeros_like(self.clock.first_row)
        try:
            return super()._row_keys(rows, device)
        finally:
            self.clock.first_row = first_row


class RelativeAttention(nn.Module):
    """Score = (q + u)·k + (q + v)·W R[distance], and with `segments` + (q + s)·e[same or not], over √d (Dai et al., 2019, §3.3;
    Yang et al., 2019, §2.4-2.5). Projections have no biases; u and v are given where layers share them."""

    def __init__(self, *, width: int, heads: int, head_width: int, segments: bool, own_biases: bool) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        inner = heads * head_width
        self.projections = nn.Linear(width, 3 * inner, bias=False)
        self.distances = nn.Linear(width, inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        own = (heads, head_width)
        self.content_bias = nn.Parameter(torch.zeros(own)) if own_biases else None
        self.distance_bias = nn.Parameter(torch.zeros(own)) if own_biases else None
        self.segment_bias = nn.Parameter(torch.zeros(own)) if segments else None
        self.segments = nn.Parameter(torch.zeros(2, *own)) if segments else None

    def read(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, L, H, d) of (B, L, D), and keys and values (B, H, M + L, d) of [past; x]."""
        weight, inner = self.projections.weight, self.heads * self.head_width
        query, own = self.projections(x).split([inner, 2 * inner], dim=-1)
        if past is not None:
            own = torch.cat([nn.functional.linear(past.to(x.dtype), weight[inner:]).to(own.dtype), own], dim=1)
        shaped = own.unflatten(-1, (2, self.heads, self.head_width)).permute(2, 0, 3, 1, 4)
        return self._apart(query), shaped[0], shaped[1]

    def ask(self, x: Tensor) -> Tensor:
        """Queries alone: (M, D) to (M, H, d)."""
        return self._apart(nn.functional.linear(x, self.projections.weight[: self.heads * self.head_width]))

    def afar(self, bearings: Bearings) -> Tensor:
        """The distances as keys, (H, d, R) or (B, H, d, R): made once, for one or two streams."""
        keys = self._apart(self.distances(bearings.distances)).movedim(-3, -1)
        return keys if bearings.turned is None else keys.index_select(0, bearings.turned.long())

    def _apart(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_width))

    def context(
        self, query: Tensor, key: Tensor, value: Tensor, far: Tensor, bearings: Bearings, dropout: Dropout,
        biases: tuple[Tensor, Tensor] | None, *, length: int, positions: QueryPositions | None = None,
    ) -> Tensor:
        """Queries (B, K, H, d), of all tokens or of the given positions, to the heads' outputs side by side (B, K, H·d);
        `far` is what `afar` made of the distances."""
        keys, scale = key.shape[2], self.head_width**-0.5
        u, v = biases if biases is not None else (self.content_bias, self.distance_bias)
        assert u is not None and v is not None  # given by the network unless this layer has its own
        scores = self._with(query, u, scale) @ key.transpose(-2, -1)
        by_distance = self._with(query, v, scale) @ far
        moved = shift(by_distance, keys) if positions is None else shift_at(by_distance, positions.columns, length, keys)
        scores = scores + moved
        if bearings.differs is not None:
            assert self.segments is not None and self.segment_bias is not None  # `differs` is made for layers that have them
            kinds = self._with(query, self.segment_bias, scale) @ self.segments.permute(1, 2, 0).to(query.dtype)
            scores = scores + torch.where(bearings.differs, kinds[..., 1:], kinds[..., :1])
        shares = _softmax(scores, bearings.mask, every_row_sees=positions is None)
        if dropout.active:
            batch, heads, _, _ = shares.shape
            columns = None if positions is None else positions.columns
            keep = dropout.keep_scores(batch, heads, length, keys, shares.device, columns)
            shares = drop(shares, keep, dropout.scale)
        return (shares @ value).transpose(1, 2).flatten(-2)

    def _with(self, query: Tensor, bias: Tensor, scale: float) -> Tensor:
        """(B, K, H, d) plus a bias, scaled, heads first."""
        return ((query + bias.to(query.dtype)) * scale).transpose(1, 2)


def _softmax(scores: Tensor, mask: Tensor | None, *, every_row_sees: bool) -> Tensor:
    """Shares of what is seen; a query that sees nothing takes nothing.

    Differs: the authors of XLNet add -1e30, so that such a query averages over all keys, the hidden ones included.
    """
    if mask is None:
        return torch.softmax(scores, dim=-1, dtype=scores.dtype)
    if every_row_sees:
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1, dtype=scores.dtype)
    blind = ~mask.any(dim=-1, keepdim=True)
    return torch.softmax(scores.masked_fill(~(mask | blind), float("-inf")), dim=-1, dtype=scores.dtype).masked_fill(blind, 0.0)


class Drops(nn.Module):
    """The dropouts of one stream through a layer: attention weights, attention's output, inner activations, their output."""

    def __init__(self, *, dropout: float, attention_dropout: float, clock: Clock) -> None:
        super().__init__()
        self.shares = Dropout(attention_dropout, clock)
        self.attention = Dropout(dropout, clock)
        self.activation = Dropout(dropout, clock)
        self.inner = Dropout(dropout, clock)


class RelativeLayer(nn.Module):
    """Attention and two dense maps, a norm after each (post-norm). `streams: 2` adds dropouts for a query stream."""

    def __init__(
        self, *, width: int, heads: int, head_width: int, inner: int, activation: Activation, norm_epsilon: float,
        dropout: float, attention_dropout: float, segments: bool, own_biases: bool, streams: int, clock: Clock,
    ) -> None:
        super().__init__()
        self.activation: Activation = activation
        self.attention = RelativeAttention(
            width=width, heads=heads, head_width=head_width, segments=segments, own_biases=own_biases
        )
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.inner_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.drops = Drops(dropout=dropout, attention_dropout=attention_dropout, clock=clock)
        self.query_drops = Drops(dropout=dropout, attention_dropout=attention_dropout, clock=clock) if streams > 1 else None

    def forward(
        self, x: Tensor, past: Tensor | None, bearings: Bearings, biases: tuple[Tensor, Tensor] | None,
        query: Query | None = None, *, content: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """The content stream (B, L, D) over [past; content], and the query stream (M, D) if there is one.

        `content` false: the content stream is not needed behind this layer and comes back as it was.
        """
        asking, key, value = self.attention.read(x, past)
        far = self.attention.afar(bearings)
        made = None
        if query is not None:
            assert self.query_drops is not None  # the network has two streams
            positions = query.positions
            context = self.attention.context(
                positions.spread(self.attention.ask(query.rows)), key, value, far, query.bearings, self.query_drops.shares,
                biases, length=x.shape[1], positions=positions,
            )
            made_at = context.flatten(0, 1).index_select(0, positions.cells)
            made = self._finish(query.rows, made_at, self.query_drops, positions.at)
        if content:
            context = self.attention.context(asking, key, value, far, bearings, self.drops.shares, biases, length=x.shape[1])
            x = self._finish(x, context, self.drops, None)
        return x, made

    def flops(self, size: Shown, *, past: int, far: int, queries: int | None, block: int, content: bool) -> float:
        """Floating-point operations of forward and backward for rows that remember `past` tokens and know `far` distances.

        `queries` are those of the second stream, None for none, in rows of `block`; `content` as in `forward`.
        """
        inside, keys = self.attention.out.in_features, size.length + past
        width, after = self.attention.out.out_features, maps(self.attention.out, self.inner, self.outer)
        met = inside * (2 * keys + far)  # scores by content and by distance, and values
        found = TRAINED * size.tokens * (3 * width * inside + (after + met if content else 0))
        found += CONSTANT * (size.rows * past * 2 * width * inside + far * width * inside)
        if queries is not None:
            found += TRAINED * (queries * (width * inside + after) + size.rows * block * met)
        return found

    def _finish(self, x: Tensor, context: Tensor, drops: Drops, positions: Positions | None) -> Tensor:
        """Everything after attention: per token, (B, L, D) or (M, D) at positions."""
        x = self.attention_norm(x + drops.attention(self.attention.out(context), positions))
        changed = drops.activation(activate(self.inner(x), self.activation), positions)
        return self.inner_norm(x + drops.inner(self.outer(changed), positions))
