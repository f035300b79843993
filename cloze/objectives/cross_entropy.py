"""Cross-entropy summed over rows, in float32, with the number of correct predictions.

`vocabulary_loss` never keeps the scores of more rows than needed: on a CPU it turns blocks of scores into their own
gradient while they are in the cache (the idea of Liger's fused linear cross-entropy, Hsu et al., 2024).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.selected import rows_to_add
from cloze.networks.fast.residual import linear
from cloze.networks.fast.switch import bits, kernel_for

_SCORES_HELD = 1 << 25  # scores held at once in the dtype of the product
_SCORES_WIDE = 1 << 18  # scores held at once in float32: 1 MB, which fits a core's cache
_A_THREAD = 1 << 20  # scores per thread that make a further thread pay


def cross_entropy_sum(
    scores: Tensor, targets: Tensor, weights: Tensor | None, smoothing: float = 0.0, z_loss: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Weighted sums over the M rows of (M, C): the loss, and the rows whose only best class is the target.

    `smoothing` spreads that share of every target's weight evenly over all classes (Szegedy et al., 2016, §7). `z_loss` times the
    square of the logarithm of the softmax's denominator is added to every row's loss (Mesh TensorFlow's `z_loss`).
    """
    if scores.device.type == "cpu" and not torch.compiler.is_compiling():
        gradient = torch.is_grad_enabled() and scores.requires_grad
        total, right = _ScoresLoss.apply(scores, targets, weights, gradient, smoothing, z_loss)
        return total, right
    logits = scores if scores.dtype == torch.float64 else scores.float()
    losses = F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)
    if z_loss:
        losses = losses + z_loss * logits.logsumexp(1).square()
    right = are_right(logits.detach(), targets)
    if weights is not None:
        losses, right = losses * weights, right * weights
    return losses.sum(), right.sum()


def are_right(scores: Tensor, targets: Tensor) -> Tensor:
    """Whether the target is the only best class of each row (M, C), or of (M,) the sign of the score; float32, 1 or 0."""
    if scores.dim() == 1:
        return ((scores > 0) == (targets > 0)).float()
    return ((scores >= scores.gather(1, targets[:, None])).sum(1) == 1).float()


def vocabulary_loss(
    rows: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor | None, smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """`cross_entropy_sum` of `rows` (M, E) times `table` (V, E) plus `bias` (V)."""
    if rows.device.type != "cpu" or torch.compiler.is_compiling():
        return cross_entropy_sum(F.linear(rows, table, bias), targets, weights, smoothing, z_loss)
    if torch.is_autocast_enabled("cpu"):
        rows = rows.to(torch.get_autocast_dtype("cpu"))
    wanting = (tensor.requires_grad for tensor in (rows, table, bias) if tensor is not None)  # any of them may be frozen
    gradient = torch.is_grad_enabled() and any(wanting)
    total, right = _VocabularyLoss.apply(rows, table, bias, targets, weights, gradient, smoothing, z_loss)
    return total, right


class _ScoresLoss(torch.autograd.Function):
    """The forward pass computes the gradient, in the dtype of the scores; the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, targets: Tensor, weights: Tensor | None, gradient: bool, smoothing: float, z_loss: float
    ) -> tuple[Tensor, Tensor]:
        total, right = _zero_sums(scores.dtype)
        d_scores = torch.empty_like(scores) if gradient else None
        shares = _weights(weights, len(scores), total.dtype)
        _add_losses(scores, targets, shares, total, right, d_scores, smoothing, z_loss)
        ctx.save_for_backward(d_scores)
        ctx.mark_non_differentiable(right)
        return total, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (d_scores,) = ctx.saved_tensors
        return d_scores * float(gradient), None, None, None, None, None


class _VocabularyLoss(torch.autograd.Function):
    """The forward pass computes the gradients block by block; the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, table: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor | None, gradient: bool,
        smoothing: float, z_loss: float,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", enabled=False):
            dtype = rows.dtype
            table_cast = table.to(dtype)
            bias_cast = None if bias is None else bias.to(dtype)
            total, right = _zero_sums(dtype)
            count = len(rows)
            rows, targets, weights = _padded_to_few_sizes(rows, targets, _weights(weights, count, total.dtype))
            for_rows, for_table, for_bias = (gradient and required for required in ctx.needs_input_grad[:3])
            d_rows = torch.empty_like(rows) if for_rows else None
            d_table = torch.zeros_like(table) if for_table and not len(rows) else None  # else the first block's own
            d_bias = torch.zeros_like(bias) if for_bias and bias is not None else None
            held = max(1, _SCORES_HELD // len(table))
            for start in range(0, len(rows), held):
                part = slice(start, start + held)
                scores = linear(rows[part], table_cast, bias_cast)
                into = scores if gradient else None
                _add_losses(scores, targets[part], weights[part], total, right, into, smoothing, z_loss)
                if d_rows is not None:
                    torch.mm(scores, table_cast, out=d_rows[part])
                if for_table:
                    product = scores.t() @ rows[part]
                    d_table = product.to(table.dtype) if d_table is None else d_table.add_(product)
                if d_bias is not None:
                    d_bias += (scores.new_ones(1, len(scores)) @ scores).view(-1)
        ctx.save_for_backward(None if d_rows is None else d_rows[:count], d_table, d_bias)
        ctx.mark_non_differentiable(right)
        return total, right

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_rows, d_table, d_bias = ctx.saved_tensors
        scale = float(gradient)
        scaled = (None if part is None else part * scale for part in (d_rows, d_table, d_bias))
        return *scaled, None, None, None, None, None


def _padded_to_few_sizes(rows: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pad with rows of weight 0, so that the scores, the largest block of memory, have one of few sizes."""
    more = rows_to_add(len(rows))
    return F.pad(rows, (0, 0, 0, more)), F.pad(targets, (0, more)), F.pad(weights, (0, more))


def _zero_sums(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    return torch.zeros((), dtype=kind), torch.zeros((), dtype=torch.float32)


def _weights(weights: Tensor | None, count: int, dtype: torch.dtype) -> Tensor:
    return torch.ones(count, dtype=dtype) if weights is None else weights.to(dtype)


def _add_losses(
    scores: Tensor, targets: Tensor, weights: Tensor, total: Tensor, right: Tensor, into: Tensor | None, smoothing: float,
    z_loss: float,
) -> None:
    """Add the loss and the correct predictions to the sums; `into` receives the gradient of the scores, and may be the scores."""
    if (kernel := kernel_for("cross_entropy", scores)) is not None:
        _add_compiled(kernel.take_losses, scores, targets, weights, total, right, into, smoothing, z_loss)
        return
    step = max(1, _SCORES_WIDE // max(1, scores.shape[1]))
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        logits = scores[part].to(total.dtype)
        target, weight = targets[part, None], weights[part, None]
        top = logits.amax(1, keepdim=True)
        chosen = logits.gather(1, target)
        first = (chosen == top).squeeze(1)
        if bool(first.any()):  # a tie with another class counts as wrong
            right += (((logits[first] == top[first]).sum(1) == 1) * weight[first, 0]).sum()
        if smoothing:
            chosen = chosen * (1 - smoothing) + logits.mean(1, keepdim=True) * smoothing
        shares = torch.softmax(logits, 1)  # one pass; the largest probability is one over the sum of exponentials
        log_sum = top - shares.amax(1, keepdim=True).log()
        total += ((log_sum - chosen + z_loss * log_sum.square()) * weight).sum()
        if into is not None:
            shares *= weight * (1 + 2 * z_loss * log_sum)
            shares.scatter_add_(1, target, weight * (smoothing - 1))
            if smoothing:
                shares -= weight * (smoothing / shares.shape[1])
            into[part] = shares


def _add_compiled(
    take_losses: Any, scores: Tensor, targets: Tensor, weights: Tensor, total: Tensor, right: Tensor, into: Tensor | None,
    smoothing: float, z_loss: float,
) -> None:
    """The same by compiled code that visits each row once, with as many threads as torch has."""
    rows, classes = scores.shape
    sums = np.empty((2, rows))
    gradients = np.empty((0, classes), dtype=np.int16) if into is None else bits(into)
    arguments = (
        bits(scores), targets.contiguous().numpy(), weights.contiguous().numpy(), smoothing, z_loss, gradients, into is scores,
        *sums,
    )
    threads = min(torch.get_num_threads(), max(1, scores.numel() // _A_THREAD))
    borders = [rows * number // threads for number in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:  # starts a thread when it gets work, not before
        futures = [pool.submit(take_losses, *arguments, *part) for part in pairwise(borders[1:])]
        take_losses(*arguments, 0, borders[1])
        for other in futures:
            other.result()
    total += sums[0].sum()
    right += sums[1].sum()
