"""The norms of the family, and where a residual connection applies them: after the sum, or before or after the function whose
output is added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks import choices
from cloze.networks.choices import Norm, Norms


class RootMeanSquare(nn.RMSNorm):
    """`nn.RMSNorm` in float32 whatever comes in, as in T5's code; what goes out has the dtype of what came in."""

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        if x.dtype == self.weight.dtype:
            return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)
        return F.rms_norm(x.to(self.weight.dtype), self.normalized_shape, self.weight, self.eps).to(x.dtype)


def make_norm(kind: Norm, width: int, epsilon: float) -> nn.Module:
    """`layer`: Ba et al., 2016, with or without offsets, or without weights. `rms`: Zhang & Sennrich, 2019, §3, a gain alone."""
    if kind == "rms":
        return RootMeanSquare(width, eps=epsilon)
    return nn.LayerNorm(width, eps=epsilon, bias=kind == "layer", elementwise_affine=kind != "layer_without_weights")


@dataclass(frozen=True)
class QueryKeyNorm:
    """Norms of queries and keys (B, H, L, W): of each head (`whole` false; one gain for all heads), or of all heads side by
    side."""

    kind: Norm
    epsilon: float
    whole: bool

    def module(self, heads: int, head_width: int) -> nn.Module:
        """The norm of queries, or of keys, with so many heads."""
        return make_norm(self.kind, heads * head_width if self.whole else head_width, self.epsilon)

    def __call__(self, norm: Any, x: Tensor) -> Tensor:
        """x normed by such a module, in its own dtype."""
        if not self.whole:
            normed: Tensor = norm(x)
            return normed.to(x.dtype)
        side_by_side = norm(x.transpose(1, 2).flatten(2))
        return side_by_side.unflatten(-1, (x.shape[1], x.shape[3])).transpose(1, 2).to(x.dtype)


Function = Callable[..., Any]


class Post:
    """norm(x + drop(function(x))) (Vaswani et al., 2017, §3.1); `take` selects the tokens of x that `function` returns.

    `pre`: the norm stands before the function. `norms_sum`: it is that of the sum.
    """

    pre = False
    norms_sum = True

    def connect(self, x: Tensor, function: Function, norm: Function, drop: Function, take: Function) -> Tensor:
        """The norm of x plus `function` of x."""
        output: Tensor = norm(take(x) + drop(function(x)))
        return output


class Pre(Post):
    """x + drop(function(norm(x))) (Radford et al., 2019, §2.3)."""

    pre = True
    norms_sum = False

    def connect(self, x: Tensor, function: Function, norm: Function, drop: Function, take: Function) -> Tensor:
        """x plus `function` of its norm."""
        output: Tensor = take(x) + drop(function(norm(x)))
        return output


class Branch(Post):
    """x + drop(norm(function(x))) (Liu et al., 2022, §3.2)."""

    norms_sum = False

    def connect(self, x: Tensor, function: Function, norm: Function, drop: Function, take: Function) -> Tensor:
        """x plus the norm of `function` of x."""
        output: Tensor = take(x) + drop(norm(function(x)))
        return output


NormPlace = Post | Pre | Branch


def norm_place(norm: Norms) -> NormPlace:
    """The place that a recipe's norm has."""
    if isinstance(norm, choices.BranchNorm):
        return Branch()
    return Pre() if isinstance(norm, choices.PreNorm) else Post()
