"""The largest singular values and vectors of a sparse matrix, by randomised subspace iteration (Halko et al., 2011, alg. 4.4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class CompressedSparseRows(NamedTuple):
    """A sparse matrix by rows: row r has the entries `starts[r]` … `starts[r + 1]`."""

    starts: Tensor
    columns: Tensor
    values: Tensor

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, values: Tensor, count: int) -> CompressedSparseRows:
        """From entries in any order; `count` rows."""
        order = torch.argsort(rows, stable=True)
        sizes = torch.bincount(rows, minlength=count)
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        narrow = torch.int32 if len(rows) < 2**31 else torch.int64
        return cls(starts.to(narrow), columns[order].to(narrow), values[order])

    def times(self, dense: Tensor) -> Tensor:
        """This matrix times a dense one (columns, k), (rows, k)."""
        if not len(self.columns):
            return dense.new_zeros(len(self.starts) - 1, dense.shape[1])
        return F.embedding_bag(
            self.columns, dense, self.starts, mode="sum", per_sample_weights=self.values, include_last_offset=True
        )


class Sparse:
    """A sparse matrix (rows, columns) with its transpose: entries `row`, `column`, `value` (N,), each cell at most once."""

    def __init__(self, row: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.across = CompressedSparseRows.of(row, column, value, shape[0])
        self.down = CompressedSparseRows.of(column, row, value, shape[1])
        self.squares = float(value.double().square().sum())

    def __len__(self) -> int:
        return len(self.across.values)


class Singular(NamedTuple):
    """Left vectors (rows, k), singular values (k,) in descending order, right vectors (columns, k)."""

    left: Tensor
    values: Tensor
    right: Tensor


class Subspace:
    """A subspace that each pass over a matrix turns towards its largest right singular vectors.

    It has `rank` + `oversample` dimensions, or as many as the matrix if that is fewer. `begin` (columns, k) are the vectors of
    an earlier run to start from; the rest is random by `seed`.
    """

    def __init__(self, matrix: Sparse, rank: int, *, oversample: int = 10, seed: int = 0, begin: Tensor | None = None) -> None:
        self.matrix, self.rank = matrix, rank
        size = min(rank + oversample, *matrix.shape)
        values = matrix.across.values
        generator = torch.Generator().manual_seed(seed)
        start = torch.randn(matrix.shape[1], size, generator=generator, dtype=values.dtype).to(values.device)
        if begin is not None and bool(begin.any()):
            basis = begin[:, :size].to(start)
            start = torch.cat([basis, start[:, basis.shape[1] :] * basis.norm() / start.norm()], dim=1)
        self.right = torch.linalg.qr(start).Q

    def improve(self) -> Singular:
        """One pass: two products. Returns the singular vectors within the new subspace, at most `rank` of them."""
        left = torch.linalg.qr(self.matrix.across.times(self.right)).Q
        basis, inner = torch.linalg.qr(self.matrix.down.times(left))
        u, values, v = torch.linalg.svd(inner.double())
        self.right = basis @ u.to(basis.dtype)
        left = left @ v.T.to(left.dtype)
        size = min(self.rank, len(values))
        left, values, right = left[:, :size], values[:size].to(left.dtype), self.right[:, :size]
        # Signs are arbitrary: make the largest entry of every left vector positive.
        sign = left.gather(0, left.abs().argmax(0, keepdim=True)).sign()
        return Singular(left * sign, values, right * sign)


def truncated_svd(matrix: Sparse, rank: int, *, passes: int = 40, oversample: int = 10, seed: int = 0) -> Singular:
    """The `rank` largest singular values and vectors, after `passes` passes over the matrix (two products each)."""
    subspace = Subspace(matrix, rank, oversample=oversample, seed=seed)
    for _ in range(passes - 1):
        subspace.improve()
    return subspace.improve()
