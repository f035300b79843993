"""A selection of the tokens of a batch: gathered as rows (M, D), laid out as short rows (B, K, D), and scattered back.

Networks use it to skip padding, and to compute the last layer only at the tokens whose state is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from cloze.batch import on_host, send
from cloze.networks.blocks.dropout import Positions
from cloze.networks.fast.switch import takes_device

ROWS = 64
_FEW = 8 * ROWS
PADDING = 1 / 16  # the share of padding from which leaving it out is faster
_SLOTS = 8  # the number of cells of a row is a multiple of this


def rows_to_add(count: int) -> int:
    """How many unread rows to add to `count` rows to reach a multiple of `ROWS`; 0 if `count` is small, so at most one in eight.

    Without them a tensor has as many rows as the batch has tokens, a new number in every batch, and glibc cannot reuse the memory
    of a slightly smaller one: a mini BART grew to three times the memory of a step.
    """
    return -count % ROWS if count >= _FEW else 0


@dataclass(frozen=True)
class Selected:
    """M tokens of rows (B, L), sorted by row and position, and the cell of each in a block (B, K).

    With `real` the block has the shape of the rows; `of` moves the tokens of a row together. Tokens after the first `count`
    repeat the last one, so that M takes few values (`rows_to_add`): they are never read and get no gradient.
    """

    positions: Positions  # row and position of each, (M,)
    flat: Tensor  # row * L + position, (M,)
    slot: Tensor  # the number of its cell in the row, (M,)
    cells: Tensor  # row * K + slot, (M,)
    columns: Tensor | None  # the position of the token in each cell, 0 in an empty one, (B, K); None: the cell's own number
    batch: int
    length: int  # L
    across: int  # K
    count: int
    _indices: dict[tuple[str, int, int], Tensor] = field(default_factory=dict, repr=False)  # for all layers of a stack

    @classmethod
    def real(cls, block: Tensor) -> Selected:
        """The tokens of blocks (B, L) that are not padding (0)."""
        flat = (block > 0).flatten().nonzero().view(-1)
        count = len(flat)
        flat = torch.cat([flat, flat[-1:].expand(rows_to_add(count))])
        batch, length = block.shape
        position = flat % length
        return cls(Positions(flat // length, position), flat, position, flat, None, batch, length, length, count)

    @classmethod
    def of(cls, chosen: Tensor, batch: int, length: int, *, even: bool = False) -> Selected:
        """The tokens at flat positions, in any order, possibly repeated; with `even` a few more (see `rows_to_add`)."""
        marked = torch.zeros(batch * length, dtype=torch.bool)
        marked[on_host(chosen)] = True
        if even:
            more, free = rows_to_add(int(marked.sum())), (~marked).nonzero().view(-1)
            if 0 < more <= len(free):  # spread, so that no row of the batch has many more tokens than others
                marked[free[torch.arange(more) * len(free) // more]] = True
        flat = marked.nonzero().view(-1)
        row, position = flat // length, flat % length
        counts = torch.zeros(batch, dtype=torch.long).index_add_(0, row, torch.ones_like(row))
        across = -(-max(1, int(counts.max())) // _SLOTS) * _SLOTS
        slot = torch.arange(len(flat)) - (counts.cumsum(0) - counts)[row]
        cells = row * across + slot
        columns = torch.zeros(batch * across, dtype=torch.long).index_copy_(0, cells, position).view(batch, across)
        row, position, flat, slot, cells, columns = (
            send(part, chosen.device) for part in (row, position, flat, slot, cells, columns)
        )
        return cls(Positions(row, position), flat, slot, cells, columns, batch, length, across, len(flat))

    def take(self, x: Tensor) -> Tensor:
        """(B, L, …) to (M, …)."""
        return x.flatten(0, 1).index_select(0, self.flat)

    def put_back(self, rows: Tensor) -> Tensor:
        """(M, …) to (B, L, …), zero elsewhere."""
        tokens = rows.new_zeros(self.batch * self.length, *rows.shape[1:])
        tokens = tokens.index_copy(0, self.flat[: self.count], rows[: self.count])
        return tokens.view(self.batch, self.length, *rows.shape[1:])

    def lay_out(self, rows: Tensor) -> Tensor:
        """(M, …) to (B, K, …), zero in empty cells."""
        cells = rows.new_zeros(self.batch * self.across, *rows.shape[1:])
        cells = cells.index_copy(0, self.cells[: self.count], rows[: self.count])
        return cells.view(self.batch, self.across, *rows.shape[1:])

    def collect(self, block: Tensor) -> Tensor:
        """(B, K, …) to (M, …)."""
        return block.flatten(0, 1).index_select(0, self.cells)

    def queries_of(self, x: Tensor) -> Tensor:
        """Select along the axis of queries: (B or 1, H or 1, L, …) to (B, H or 1, K, …)."""
        if self.columns is None:
            return x
        row = torch.arange(self.batch, device=x.device)[:, None]
        return x.expand(self.batch, *x.shape[1:]).transpose(1, 2)[row, self.columns].transpose(1, 2)

    def split_heads(self, x: Tensor, kinds: int, heads: int) -> Tensor:
        """(M, kinds·H·W) to (kinds, B·H, K, W); empty cells get a copy of the last row of x.

        x may have one row more than there are tokens, (M + 1, ·): that row, such as zeros, then fills the empty cells.
        """
        key = ("split" if len(x) == len(self.flat) else "padded", kinds, heads)
        if key not in self._indices:
            row = self.flat.new_full((self.batch * self.across,), len(x) - 1)
            row[self.cells[: self.count]] = torch.arange(self.count)
            index = row.view(1, self.batch, 1, self.across) * (kinds * heads)
            index = index + torch.arange(kinds).view(-1, 1, 1, 1) * heads + torch.arange(heads).view(-1, 1)
            self._indices[key] = index.flatten().to(torch.int32)
        split = x.view(len(x) * kinds * heads, -1).index_select(0, self._indices[key])
        return split.view(kinds, self.batch * heads, self.across, -1)

    def merge_heads(self, x: Tensor, heads: int) -> Tensor:
        """The inverse of `split_heads`: (kinds, B·H, K, W) to (M, kinds·H·W), with zeros after the first `count` rows."""
        kinds, _, across, width = x.shape
        key = ("merge", kinds, heads)
        if key not in self._indices:
            first = self.positions.row * (heads * across) + self.slot
            index = first.view(-1, 1, 1) + torch.arange(kinds).view(-1, 1) * (self.batch * heads * across)
            self._indices[key] = (index + torch.arange(heads) * across).flatten().to(torch.int32)
        merged = x.view(-1, width).index_select(0, self._indices[key]).view(-1, kinds * heads * width)
        merged[self.count :] = 0
        return merged


def real_tokens(block: Tensor | None, x: Tensor) -> Selected | None:
    """The tokens of states x (B, L, D) that are not padding (0 in `block`), on a CPU and if padding is more than `PADDING` of the
    batch; None elsewhere."""
    if block is None or block.shape != x.shape[:2] or not takes_device(x):
        return None
    real = int((block > 0).sum())
    return Selected.real(block) if 0 < real < block.numel() * (1 - PADDING) else None
