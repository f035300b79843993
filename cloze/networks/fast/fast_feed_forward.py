"""A feed-forward with its residual connection and norm as one autograd function; `residual.py` lists what makes it faster."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import Dropout, keep_
from cloze.networks.blocks.feed_forward import FeedForward, FeedForwardCall
from cloze.networks.blocks.norm import NormPlace
from cloze.networks.fast.activation import activate, activate_backward
from cloze.networks.fast.residual import Residual, bias_gradient, linear, offset_of, supported, weight_gradient


def fits(call: FeedForwardCall, norm: nn.Module, norm_place: NormPlace, x: Tensor) -> bool:
    """Whether the function supports the norm, the maps and the kind of feed-forward."""
    host = call.host
    return type(call.kind) is FeedForward and supported(norm, norm_place, host.inner, host.outer)


def feed_forward(x: Tensor, call: FeedForwardCall, norm: Any, dropout: Dropout, norm_place: NormPlace) -> Tensor:
    """The residual connection around a plain feed-forward: states (B, L, D) or rows (M, D)."""
    host, between, keep, positions = call.host, call.dropout, None, call.positions
    if between.active:
        shape = (*x.shape[:-1], host.inner.out_features)
        keep = between.keep_hidden(shape, x.device, positions).view(-1, shape[-1])
    rows = FastFeedForward.apply(
        x.reshape(-1, x.shape[-1]), host.inner.weight, host.inner.bias, host.outer.weight, host.outer.bias, norm.weight,
        offset_of(norm), call.kind.activation, keep, between.scale if keep is not None else 1.0,
        Residual.of(norm, norm_place, dropout, x.shape, positions),
    )
    return rows.view(x.shape)


class FastFeedForward(torch.autograd.Function):
    """x + drop(outer(drop(activate(inner(x))))) with a norm before or after, on rows (N, D). `keep` and `scale` are those of
    the dropout between the maps. Without `offset` the norm is by root mean square.

    Shapes, for I inner numbers: `w1` (I, D), `w2` (D, I); `read` and the output (N, D); `hidden`, `active` and `keep` (N, I).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, gain: Tensor,
        offset: Tensor | None, activation: str, keep: Tensor | None, scale: float, residual: Residual,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            read, mean, rstd = residual.norm_before(x, gain, offset)
            dtype = x.dtype
            w1_cast = w1.to(dtype)
            hidden = linear(read, w1_cast, None if b1 is None else b1.to(dtype))
            active = hidden.relu_() if activation == "relu" else activate(hidden, activation)
            if keep is not None:
                keep_(active, keep)
            w2_cast, b2_cast = residual.cast_output(w2, b2, scale, dtype)
            y, norm_input, mean, rstd = residual.add(x, linear(active, w2_cast, b2_cast), gain, offset, mean, rstd)
        before = None if activation == "relu" else hidden  # the backward pass of a ReLU needs only its output
        ctx.save_for_backward(
            norm_input, read, mean, rstd, before, active, keep, w1, w1_cast, b1, w2, w2_cast, b2, gain, offset
        )
        ctx.activation, ctx.scale, ctx.residual = activation, scale, residual
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            norm_input, read, mean, rstd, hidden, active, keep, w1, w1_cast, b1, w2, w2_cast, b2, gain, offset
        ) = ctx.saved_tensors
        residual: Residual = ctx.residual
        scale = ctx.scale * residual.scale
        gradient, d_branch, d_gain, d_offset = residual.add_backward(gradient, norm_input, mean, rstd, gain, offset)
        required = ctx.needs_input_grad
        d_w2 = weight_gradient(d_branch, active, w2, scale) if required[3] else None
        d_b2 = bias_gradient(d_branch, b2, residual.scale) if required[4] else None
        read_wanted = required[0] or residual.pre and (required[5] or required[6])
        if not (read_wanted or required[1] or required[2]):  # what is below is frozen
            return None, None, None, d_w2, d_b2, d_gain, d_offset, None, None, None, None
        d_active = d_branch @ w2_cast
        if hidden is not None and keep is not None:
            keep_(d_active, keep)
        d_hidden = activate_backward(d_active, active if hidden is None else hidden, ctx.activation)
        d_w1 = weight_gradient(d_hidden, read, w1, 1.0) if required[1] else None
        d_b1 = bias_gradient(d_hidden, b1) if required[2] else None
        d_x = None
        if read_wanted and residual.pre:
            d_read = d_hidden @ w1_cast
            d_x, d_gain, d_offset = residual.norm_before_backward(d_read, gradient, norm_input, mean, rstd, gain, offset)
        elif read_wanted:
            d_x = gradient.addmm_(d_hidden, w1_cast)
        return d_x, d_w1, d_b1, d_w2, d_b2, d_gain, d_offset, None, None, None, None
