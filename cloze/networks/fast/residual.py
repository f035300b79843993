"""What the two fast functions of a layer share: norm, output map and residual connection, forward and backward.

`fast_attention.py` and `fast_feed_forward.py` each compute one residual connection of a layer in these steps: `norm_before`,
linear maps and their own function, `cast_output` and `linear`, `add`; backward in reverse. They compute what the plain modules do
and add what eager autograd cannot: dropout and softmax scales are folded into weights, which are cast once for forward and
backward; results are written in place; the residual's gradient is accumulated by the matrix product that produces it; a ReLU
keeps one tensor, its output, for the backward pass. On a 4x256 encoder a training step then takes little more time than its
matrix products. Any floating dtype works (the tests use float64); training uses bfloat16 with float32 weights and statistics.

Differs: under bfloat16 the residual stream and inverse root mean squares are bfloat16, where autocast alone would keep
them in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cloze.networks.blocks.computed import is_linear, untouched
from cloze.networks.blocks.dropout import Dropout, Positions, keep_, kept
from cloze.networks.blocks.norm import NormPlace, RootMeanSquare
from cloze.networks.blocks.recurrence.stepping import onednn_multiplies


class Residual(NamedTuple):
    """One residual connection: norm before (`pre`) or after, its epsilon, and dropout of what is added.

    `keep` is the dropout mask (None: no dropout), `scale` what it multiplies the kept numbers with.
    """

    pre: bool
    epsilon: float
    keep: Tensor | None
    scale: float

    @classmethod
    def of(
        cls, norm: nn.Module, norm_place: NormPlace, dropout: Dropout, shape: torch.Size, positions: Positions | None
    ) -> Residual:
        """For states of this shape, or for the rows at `positions`."""
        epsilon = norm.eps
        assert isinstance(epsilon, float)  # `supported` has checked it: a norm of this package or of torch
        if not dropout.active:
            return cls(norm_place.pre, epsilon, None, 1.0)
        keep = dropout.keep_hidden(shape, torch.device("cpu"), positions)
        return cls(norm_place.pre, epsilon, keep.view(-1, shape[-1]), dropout.scale)

    def norm_before(self, x: Tensor, gain: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The input of the linear maps, x or its norm with `pre`, and the statistics of the norm: the mean, which a norm by root
        mean square lacks, and `rstd`, one over the standard deviation or the root mean square."""
        if not self.pre:
            return x, None, None
        if offset is not None:
            return _norm(x, gain, offset, self.epsilon)
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        mean_square = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=dtype).square_().div_(x.shape[1])
        rstd = mean_square.add_(self.epsilon).rsqrt_().to(x.dtype)
        return (x * rstd).mul_(gain.to(x.dtype)), None, rstd

    @staticmethod
    def norm_before_backward(
        d_read: Tensor, gradient: Tensor, x: Tensor, mean: Tensor | None, rstd: Tensor, gain: Tensor, offset: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The backward pass of `norm_before` with `pre`: the gradients of x, residual included, of gain and of offset."""
        if offset is not None:
            assert mean is not None  # a layer norm has both
            d_x, d_gain, d_offset = _norm_backward(d_read, x, mean, rstd, gain, offset)
            return d_x.add_(gradient), d_gain, d_offset
        normalised = x * rstd
        gain_gradient = bias_gradient(d_read * normalised, gain)
        d_normalised = d_read.mul_(gain.to(d_read.dtype))
        along = (d_normalised * normalised).sum(1, keepdim=True).div_(-x.shape[1])
        return torch.addcmul(gradient, d_normalised.addcmul_(normalised, along), rstd), gain_gradient, None

    def cast_output(self, w: Tensor, b: Tensor | None, scale: float, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the map into the residual, cast to `dtype` and multiplied by the scale of the dropout of its output;
        the weight also by `scale`, that of the dropout of its input."""
        return _cast(w, dtype, scale * self.scale), None if b is None else _cast(b, dtype, self.scale)

    def add(
        self, x: Tensor, branch: Tensor, gain: Tensor, offset: Tensor | None, mean: Tensor | None, rstd: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Dropout of the `branch`, the sum and a norm after it, if there is one: the output, the input of the norm (before or
        after), and its statistics."""
        if self.keep is not None:
            keep_(branch, self.keep)
        y = branch.add_(x)
        if self.pre:
            return y, x, mean, rstd
        assert offset is not None  # a norm after is a layer norm
        after, mean, rstd = _norm(y, gain, offset, self.epsilon)
        return after, y, mean, rstd

    def add_backward(
        self, gradient: Tensor, norm_input: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, offset: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """The backward pass of `add`: the gradients of x, of `branch` (without its scale), of gain and of offset."""
        d_gain = d_offset = None
        gradient = gradient.contiguous()
        if not self.pre:
            gradient, d_gain, d_offset = _norm_backward(gradient, norm_input, mean, rstd, gain, offset)
        d_branch = gradient if self.keep is None else kept(gradient, self.keep)
        return gradient, d_branch, d_gain, d_offset


def supported(norm: nn.Module, norm_place: NormPlace, *linears: nn.Module | None) -> bool:
    """Whether the fast functions support this norm and these linear maps; hooks and replaced modules must be called instead."""
    fits = type(norm) is nn.LayerNorm and norm.bias is not None or type(norm) is RootMeanSquare and norm_place.pre
    return fits and untouched(norm) and all(is_linear(linear) for linear in linears if linear is not None)


def offset_of(norm: nn.Module) -> Tensor | None:
    """The offset of a layer norm; a norm by root mean square has none."""
    return norm.bias if isinstance(norm, nn.LayerNorm) else None


def _norm(x: Tensor, gain: Tensor, offset: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.native_layer_norm(x, (x.shape[-1],), gain, offset, epsilon)


def _norm_backward(
    gradient: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ops.aten.native_layer_norm_backward(
        gradient, x, (x.shape[-1],), mean, rstd, gain, offset, [True, True, True]
    )


def weight_gradient(gradient: Tensor, x: Tensor, like: Tensor, scale: float) -> Tensor:
    """(N, out), (N, in) to the gradient of a linear weight, in the weight's own dtype."""
    product = (gradient.t() @ x).to(like.dtype)
    return product if scale == 1.0 else product.mul_(scale)


def bias_gradient(gradient: Tensor, like: Tensor | None, scale: float = 1.0) -> Tensor | None:
    """Column sums, as a product with ones: accumulated in float32 and several times faster than `sum` in bfloat16.

    None if there is no bias.
    """
    if like is None:
        return None
    ones = gradient.new_full((1, gradient.shape[0]), 1.0)
    total = (ones @ gradient).view(-1).to(like.dtype)
    return total if scale == 1.0 else total.mul_(scale)


def _cast(weight: Tensor, dtype: torch.dtype, scale: float) -> Tensor:
    return weight.to(dtype) if scale == 1.0 else (weight * scale).to(dtype)


def linear(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """x @ wᵀ + b, all of one dtype."""
    if b is None:
        return x @ w.t()
    if x.dtype == torch.bfloat16 and len(x) and onednn_multiplies(x.dtype):  # `addmm` first writes the bias to memory
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, w, b, "none", [], "")
        return product
    return torch.addmm(b, x, w.t())
