"""Scores over a vocabulary as the product that they are, and the distance of two such products, computed in blocks.

The scores of all tokens of 32 rows of 512 over 30,522 ids would take 2 GB for each of two networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloze.uncompiled import uncompiled

#: From scores (M, C) of the student and the teacher to a distance per row, (M,).
Distance = Callable[[Tensor, Tensor], Tensor]

_SCORES_HELD = 1 << 22  # scores of each network that exist at a time


class Product(NamedTuple):
    """The scores `rows` (M, E) times `table` (V, E), plus `bias` (V), before they are computed."""

    rows: Tensor
    table: Tensor
    bias: Tensor | None

    @property
    def shape(self) -> tuple[int, int]:
        """That of the scores: rows and classes."""
        return len(self.rows), len(self.table)

    def scores(self) -> Tensor:
        """The scores (M, V)."""
        return F.linear(self.rows, self.table, self.bias)

    def constant(self, dtype: torch.dtype | None = None) -> Product:
        """The same without gradient, and in another dtype."""
        rows, table = (tensor.detach().to(dtype or tensor.dtype) for tensor in (self.rows, self.table))
        return Product(rows, table, None if self.bias is None else self.bias.detach().to(rows.dtype))


@uncompiled
def distance_in_blocks(student: Product, teacher: Product, weights: Tensor | None, distance: Distance) -> Tensor:
    """The sum over all rows of `distance` times the `weights` (M,). Gradients reach the student alone."""
    rows, table, bias = student
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        rows, teacher = rows.to(dtype), teacher._replace(rows=teacher.rows.to(dtype))
    total: Tensor = _Distance.apply(rows, table, bias, teacher, weights, distance)
    return total


class _Distance(torch.autograd.Function):
    """The forward pass computes the gradients block by block; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, table: Tensor, bias: Tensor | None, teacher: Product, weights: Tensor | None, distance: Distance
    ) -> Tensor:
        device = rows.device.type
        with torch.autocast(device, enabled=False):
            student = Product(rows, table.to(rows.dtype), None if bias is None else bias.to(rows.dtype))
            target = teacher.constant(teacher.rows.dtype)
            differentiable = any(ctx.needs_input_grad[:3])
            total = torch.zeros((), dtype=torch.float64 if rows.dtype == torch.float64 else torch.float32, device=rows.device)
            d_rows, d_table = (torch.zeros_like(tensor) if differentiable else None for tensor in (rows, table))
            d_bias = torch.zeros_like(bias) if differentiable and bias is not None else None
            held = max(1, _SCORES_HELD // max(1, len(table)))
            for start in range(0, len(rows), held):
                part = slice(start, start + held)
                target_scores = target._replace(rows=target.rows[part]).scores()
                here = student._replace(rows=student.rows[part]).scores()
                with torch.enable_grad():
                    here.requires_grad_(differentiable)
                    distances = distance(here, target_scores)
                    loss = (distances if weights is None else distances * weights[part]).sum()
                total += loss.detach()
                if d_rows is None or d_table is None:
                    continue
                (d_scores,) = torch.autograd.grad(loss, here)
                torch.mm(d_scores, student.table, out=d_rows[part])
                d_table += d_scores.t() @ student.rows[part]
                if d_bias is not None:
                    d_bias += d_scores.sum(0)
        ctx.save_for_backward(d_rows, d_table, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [None if tensor is None else tensor * gradient.to(tensor.dtype) for tensor in ctx.saved_tensors]
        return (*gradients, None, None, None)
