"""Activations and their way back; GELU's tanh form over bfloat16 numbers in less than half the time of torch's."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.networks.fast.switch import bits, kernel_for


def activate(x: Tensor, kind: str) -> Tensor:
    """GELU (erf), GELU (tanh form) or ReLU."""
    if kind == "relu":
        return torch.relu(x)
    if kind == "gelu_tanh" and x.dtype == torch.bfloat16:
        return _gelu_tanh(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def activate_backward(gradient: Tensor, x: Tensor, kind: str) -> Tensor:
    """Back through the activation, in place: memory that was just written is in the cache, and new memory is not."""
    if kind == "relu":
        return torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=gradient)
    if kind == "gelu_tanh" and x.dtype == torch.bfloat16:
        return _gelu_tanh_backward(gradient, x)
    form = "tanh" if kind == "gelu_tanh" else "none"
    return torch.ops.aten.gelu_backward.grad_input(gradient, x, approximate=form, grad_input=gradient)


def _gelu_tanh(x: Tensor) -> Tensor:
    """By compiled code, or by a look-up; both in less than half the time of torch's tanh."""
    if (kernel := kernel_for("gelu", x)) is None:
        return _look_up(x, _tanh_tables()[0])
    output = torch.empty_like(x)
    kernel.gelu_tanh(bits(x).ravel(), bits(output).ravel())
    return output


def _gelu_tanh_backward(gradient: Tensor, x: Tensor) -> Tensor:
    if (kernel := kernel_for("gelu", x)) is None:
        return gradient.mul_(_look_up(x, _tanh_tables()[1]))
    kernel.gelu_tanh_back(bits(x).ravel(), bits(gradient).ravel())
    return gradient


@lru_cache(maxsize=1)
def _tanh_tables() -> tuple[Tensor, Tensor]:
    """GELU's tanh form and its derivative for every bfloat16: a look-up takes half the time of torch's tanh on a CPU."""
    with torch.enable_grad(), torch.inference_mode(False):
        x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).double().requires_grad_()
        y = F.gelu(x, approximate="tanh")
        (slope,) = torch.autograd.grad(y.sum(), x)
    x = x.detach()
    y = torch.where(x.isneginf(), 0.0, y.detach())
    slope = torch.where(x.isinf(), (x > 0).double(), slope)
    return y.bfloat16(), slope.bfloat16()


def _look_up(x: Tensor, table: Tensor) -> Tensor:
    index = x.contiguous().view(torch.int16).to(torch.int32).bitwise_and_(0xFFFF)
    return table.index_select(0, index.view(-1)).view(x.shape)
