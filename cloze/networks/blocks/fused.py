"""The halves of a Transformer layer as single autograd functions, the path of a CPU: two maps here, attention in
`fused_attention.py`.

The same mathematics as the layers written out, forward and backward, with what eager autograd cannot do: dropout and
softmax scales are folded into weights, which are cast once for both ways; results are written in place; the residual's
gradient is accumulated by the matrix product that produces it; a ReLU keeps one tensor, its output, for the way back. On a
4x256 encoder this is what separates a training step from the time of its matrix products alone. Holds for any floating
dtype (float64 is how the tests check it); training runs it in bfloat16 with float32 weights and statistics.

Differs: under bfloat16 the residual stream and inverse root mean squares are bfloat16, where autocast alone would keep
them in float32.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cloze.networks.blocks.dropout import keep_, kept
from cloze.networks.blocks.handing import bits, pays
from cloze.networks.blocks.norm import RootMeanSquare


class Half(NamedTuple):
    """What both halves share: norm before (`pre`) or after, its epsilon, and the dropout on the way into the residual."""

    pre: bool
    epsilon: float
    keep: Tensor | None
    scale: float


def simple(norm: nn.Module, pre: bool, *linears: nn.Module | None) -> bool:
    """Whether these are untouched linear maps and a norm that the functions know: a hook or a replacement must be called."""
    modules = [module for module in (norm, *linears) if module is not None]
    known = all(type(m) is nn.Linear for m in modules[1:])
    known = known and (type(norm) is nn.LayerNorm and norm.bias is not None or type(norm) is RootMeanSquare and pre)
    return known and not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in modules)


def _norm(x: Tensor, gain: Tensor, offset: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, (x.shape[-1],), gain, offset, epsilon)


def _norm_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, spread: Tensor, gain: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.native_layer_norm_backward(
        gradient, x, (x.shape[-1],), mean, spread, gain, offset, [True, True, True]
    )


def _weight_gradient(gradient: Tensor, x: Tensor, like: Tensor, scale: float) -> Tensor:
    """(N, out), (N, in) to the gradient of a linear weight, in the weight's own dtype."""
    product = (gradient.t() @ x).to(like.dtype)
    return product if scale == 1.0 else product.mul_(scale)


def _bias_gradient(gradient: Tensor, like: Tensor, scale: float) -> Tensor:
    """Column sums, as a product with ones: accumulated in float32 and several times faster than `sum` in bfloat16."""
    ones = gradient.new_full((1, gradient.shape[0]), 1.0)
    total = (ones @ gradient).view(-1).to(like.dtype)
    return total if scale == 1.0 else total.mul_(scale)


def _cast(weight: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    return weight.to(dtype) if scale == 1.0 else (weight * scale).to(dtype)


def _enter(x: Tensor, gain: Tensor, offset: Tensor | None, half: Half) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What the maps read, and the statistics of the norm."""
    if not half.pre:
        return x, None, None
    if offset is not None:
        return _norm(x, gain, offset, half.epsilon)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    mean = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=wide).square_().div_(x.shape[1])
    spread = mean.add_(half.epsilon).rsqrt_().to(x.dtype)
    return (x * spread).mul_(gain.to(x.dtype)), None, spread


def _leave(
    d_read: Tensor, gradient: Tensor, x: Tensor, mean: Tensor | None, spread: Tensor, gain: Tensor, offset: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Back through a norm before: the gradients of x with that of the residual, of gain and offset."""
    if offset is not None:
        assert mean is not None  # a layer norm has both
        d_x, d_gain, d_offset = _norm_backward(d_read, x, mean, spread, gain, offset)
        return d_x.add_(gradient), d_gain, d_offset
    even = x * spread
    d_gain = _bias_gradient(d_read * even, gain, 1.0)
    d_even = d_read.mul_(gain.to(d_read.dtype))
    along = (d_even * even).sum(1, keepdim=True).div_(-x.shape[1])
    return torch.addcmul(gradient, d_even.addcmul_(even, along), spread), d_gain, None


def _columns(gradient: Tensor, like: Tensor | None, scale: float = 1.0) -> Tensor | None:
    """Column sums as the gradient of a bias, None where there is none."""
    return None if like is None else _bias_gradient(gradient, like, scale)


def linear(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """x @ wᵀ + b, all of one dtype."""
    if b is None:
        return x @ w.t()
    if x.dtype == torch.bfloat16 and len(x) and _adds_bias():  # `addmm` writes the bias out first
        made: Tensor = torch.ops.mkldnn._linear_pointwise(x, w, b, "none", [], "")
        return made
    return torch.addmm(b, x, w.t())


@cache
def _adds_bias() -> bool:
    """Whether oneDNN is there and multiplies bfloat16, and adds a bias while it does."""
    asked = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None) if torch.backends.mkldnn.is_available() else None
    return asked is not None and hasattr(torch.ops.mkldnn, "_linear_pointwise") and bool(asked())


def _leaving(
    w: Tensor, b: Tensor | None, scale: float, half: Half, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """The map before the residual with the scale of the dropout behind it and, in its weight, of that before it."""
    return _cast(w, dtype, scale * half.scale), None if b is None else _cast(b, dtype, half.scale)


def _join(
    x: Tensor, changed: Tensor, gain: Tensor, offset: Tensor | None, half: Half, mean: Tensor | None, spread: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Dropout, the residual and a norm after: the output, what the norm read, and its statistics."""
    if half.keep is not None:
        keep_(changed, half.keep)
    y = changed.add_(x)
    if half.pre:
        return y, x, mean, spread
    assert offset is not None  # a norm after is a layer norm
    after, mean, spread = _norm(y, gain, offset, half.epsilon)
    return after, y, mean, spread


def _part(
    gradient: Tensor, normed: Tensor, mean: Tensor, spread: Tensor, gain: Tensor, offset: Tensor, half: Half
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Back through `_join`: the gradient of the residual, that of what was added to it (not scaled), of gain and offset."""
    d_gain = d_offset = None
    gradient = gradient.contiguous()
    if not half.pre:
        gradient, d_gain, d_offset = _norm_backward(gradient, normed, mean, spread, gain, offset)
    through = gradient if half.keep is None else kept(gradient, half.keep)
    return gradient, through, d_gain, d_offset


class Feed(torch.autograd.Function):
    """x + drop(outer(drop(activate(inner(x))))) with a norm before or after, on rows (N, D). `keep` and `scale` are those of
    the dropout between the maps; offset None: root mean square."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, gain: Tensor,
        offset: Tensor | None, activation: str, keep: Tensor | None, scale: float, half: Half,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            read, mean, spread = _enter(x, gain, offset, half)
            dtype = x.dtype
            w1_cast = w1.to(dtype)
            hidden = linear(read, w1_cast, None if b1 is None else b1.to(dtype))
            active = hidden.relu_() if activation == "relu" else _activate(hidden, activation)
            if keep is not None:
                keep_(active, keep)
            w2_cast, b2_cast = _leaving(w2, b2, scale, half, dtype)
            y, normed, mean, spread = _join(x, linear(active, w2_cast, b2_cast), gain, offset, half, mean, spread)
        before = None if activation == "relu" else hidden  # what a ReLU let through says where it did
        ctx.save_for_backward(
            normed, read, mean, spread, before, active, keep, w1, w1_cast, b1, w2, w2_cast, b2, gain, offset
        )
        ctx.activation, ctx.scale, ctx.half = activation, scale, half
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            normed, read, mean, spread, hidden, active, keep, w1, w1_cast, b1, w2, w2_cast, b2, gain, offset
        ) = ctx.saved_tensors
        half: Half = ctx.half
        scale = ctx.scale * half.scale
        gradient, through, d_gain, d_offset = _part(gradient, normed, mean, spread, gain, offset, half)
        d_w2, d_b2 = _weight_gradient(through, active, w2, scale), _columns(through, b2, half.scale)
        d_active = through @ w2_cast
        if hidden is not None and keep is not None:
            keep_(d_active, keep)
        d_hidden = _activate_backward(d_active, active if hidden is None else hidden, ctx.activation)
        d_w1, d_b1 = _weight_gradient(d_hidden, read, w1, 1.0), _columns(d_hidden, b1)
        if half.pre:
            d_x, d_gain, d_offset = _leave(d_hidden @ w1_cast, gradient, normed, mean, spread, gain, offset)
        else:
            d_x = gradient.addmm_(d_hidden, w1_cast)
        return d_x, d_w1, d_b1, d_w2, d_b2, d_gain, d_offset, None, None, None, None


def _activate(x: Tensor, kind: str) -> Tensor:
    if kind == "relu":
        return torch.relu(x)
    if kind == "gelu_tanh" and x.dtype == torch.bfloat16:
        return _gelu_tanh(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


def _activate_backward(gradient: Tensor, x: Tensor, kind: str) -> Tensor:
    """Back through the activation, in place: memory that was just written is in the cache, and new memory is not."""
    if kind == "relu":
        return torch.ops.aten.threshold_backward.grad_input(gradient, x, 0, grad_input=gradient)
    if kind == "gelu_tanh" and x.dtype == torch.bfloat16:
        return _gelu_tanh_backward(gradient, x)
    form = "tanh" if kind == "gelu_tanh" else "none"
    return torch.ops.aten.gelu_backward.grad_input(gradient, x, approximate=form, grad_input=gradient)


def _gelu_tanh(x: Tensor) -> Tensor:
    """By compiled code, or by a look-up; both in less than half the time of torch's tanh."""
    if not pays(x):
        return _look_up(x, _tanh_tables()[0])
    from cloze.networks.blocks.gelu_kernels import gelu_tanh

    made = torch.empty_like(x)
    gelu_tanh(bits(x, x.numel()), bits(made, x.numel()))
    return made


def _gelu_tanh_backward(gradient: Tensor, x: Tensor) -> Tensor:
    if not pays(x):
        return gradient.mul_(_look_up(x, _tanh_tables()[1]))
    from cloze.networks.blocks.gelu_kernels import gelu_tanh_back

    gelu_tanh_back(bits(x, x.numel()), bits(gradient, x.numel()))
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
