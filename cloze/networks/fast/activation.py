"""Activations and their way back; GELU's tanh form over bfloat16 numbers by compiled code."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.networks.fast.switch import bits, kernel_for


def activate(x: Tensor, kind: str) -> Tensor:
    """GELU (erf), GELU (tanh form), ReLU or SiLU."""
    if kind in ("relu", "silu"):
        return torch.relu(x) if kind == "relu" else F.silu(x)
    if kind == "gelu_tanh" and (kernel := kernel_for("gelu", x)) is not None:
        output = torch.empty_like(x)
        kernel.gelu_tanh(bits(x).ravel(), bits(output).ravel())
        return output
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def activate_backward(gradient: Tensor, x: Tensor, kind: str) -> Tensor:
    """Back through the activation, in place: memory that was just written is in the cache, and new memory is not."""
    if kind == "relu":
        return torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=gradient)
    if kind == "silu":
        return torch.ops.aten.silu_backward.grad_input(gradient, x, grad_input=gradient)
    if kind == "gelu_tanh" and (kernel := kernel_for("gelu", x)) is not None:
        kernel.gelu_tanh_back(bits(x).ravel(), bits(gradient).ravel())
        return gradient
    form = "tanh" if kind == "gelu_tanh" else "none"
    return torch.ops.aten.gelu_backward.grad_input(gradient, x, approximate=form, grad_input=gradient)
