"""The optimizers of static vectors and recurrent networks: plain descent, Adam with ordinary decay, AdaGrad and GloVe's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, NonNegative, Positive
from cloze.errors import RecipeError
from cloze.registry import register
from cloze.training.optimizers.optimizers import Decay, Family, Moments, Named, OptimizerSpec, groups
from cloze.training.optimizers.tensorwise import TensorwiseOptimizer
from cloze.uncompiled import eager


@register("optimizer", "sgd")
@dataclass(frozen=True, kw_only=True)
class Sgd(OptimizerSpec):
    """Stochastic gradient descent: θ ← θ - rate · v, v ← momentum · v + gradient + weight_decay · θ (torch's convention).

    `nesterov` steps along gradient + momentum · v. `row_clip` limits the norm of each row of a matrix gradient. It is a
    bound for sums of gradients: the row of a frequent word gets those of hundreds of positions at once and would diverge.
    Compiled training updates word by word, has no sums, and ignores it.
    """

    family: ClassVar[Family | None] = "sgd"
    updates: ClassVar[int] = 4

    momentum: BelowOne = 0.0
    nesterov: bool = False
    row_clip: Positive | None = None
    weight_decay: NonNegative = 0.0
    decay: Decay = "matrices"

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        if self.nesterov and not self.momentum:
            raise RecipeError("training.optimizer.sgd: nesterov needs a momentum, such as 0.9.")
        if self.row_clip is not None and not self.row_clip > 0:
            raise RecipeError(f"training.optimizer.sgd: row_clip {self.row_clip}; expected a length above 0, or null for none.")
        param_groups = groups(parameters, weight_decay=self.weight_decay, decay=self.decay)
        optimizer = eager(torch.optim.SGD)(param_groups, lr=0.0, momentum=self.momentum, nesterov=self.nesterov)
        if self.row_clip is not None:
            optimizer.register_step_pre_hook(_RowClip(self.row_clip))
        return optimizer


@dataclass(frozen=True)
class _RowClip:
    """Cuts the gradients of rows before a step."""

    longest: float

    @torch.no_grad()
    def __call__(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and parameter.dim() > 1:
                    lengths = torch.linalg.vector_norm(parameter.grad, dim=-1, keepdim=True)
                    parameter.grad.mul_(self.longest / lengths.clamp(min=self.longest))


@register("optimizer", "adam")
@dataclass(frozen=True, kw_only=True)
class Adam(Moments):
    """Adam with bias correction (Kingma and Ba, 2015, alg. 1); decay is added to the gradient, as torch's Adam does."""

    weight_decay: NonNegative = 0.0

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        param_groups = self.groups(parameters)
        return eager(torch.optim.Adam)(param_groups, lr=0.0, betas=self.betas, eps=self.epsilon)


@register("optimizer", "adagrad")
@dataclass(frozen=True, kw_only=True)
class Adagrad(OptimizerSpec):
    """AdaGrad (Duchi et al., 2011): G ← G + g², θ ← θ - rate · g / (√G + ε); G begins at `accumulator` (ELMo's code: 1)."""

    family: ClassVar[Family | None] = "adagrad"

    accumulator: NonNegative = 0.0
    epsilon: Positive = 1e-10
    weight_decay: NonNegative = 0.0
    decay: Decay = "matrices"

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        param_groups = groups(parameters, weight_decay=self.weight_decay, decay=self.decay)
        return eager(torch.optim.Adagrad)(param_groups, lr=0.0, initial_accumulator_value=self.accumulator, eps=self.epsilon)


@register("optimizer", "glove_adagrad")
@dataclass(frozen=True, kw_only=True)
class GloveAdagrad(OptimizerSpec):
    """AdaGrad as in GloVe's code (stanfordnlp/GloVe `glove.c`), which differs from the textbook's.

    Vectors: g is clipped to ±`clip`, t = rate · g, θ ← θ - t / √G, then G ← G + t². Biases (tensors of one dimension): θ
    ← θ - g / √G, then G ← G + g², without rate and clip. G begins at 1. Differs: gradients of the cells of a batch that
    share a word are summed before the step; with one cell per batch it is the code's update. `sum_clip` limits every
    number of those sums, including those of biases, so that a large batch does not diverge. Compiled training updates
    cell by cell, has no sums, and ignores it.
    """

    family: ClassVar[Family | None] = "adagrad"

    clip: Positive = 100.0
    sum_clip: Positive | None = None

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        param_groups = groups(parameters, weight_decay=0.0, decay="all")
        return _GloveAdagrad(param_groups, clip=self.clip, sum_clip=math.inf if self.sum_clip is None else self.sum_clip)


class _GloveAdagrad(TensorwiseOptimizer):
    def __init__(self, groups: list[dict[str, Any]], *, clip: float, sum_clip: float) -> None:
        super().__init__(groups, {"clip": clip, "sum_clip": sum_clip})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {"sum": torch.ones_like(parameter)}

    def update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """A step by the sum of squares before it, then the squares of the step."""
        squares = self.state[parameter]["sum"]
        longest = group["sum_clip"] if parameter.dim() == 1 else min(group["clip"], group["sum_clip"])
        step = gradient.clamp(-longest, longest)
        if parameter.dim() > 1:
            step.mul_(group["lr"])
        parameter.sub_(step / squares.sqrt())
        squares.addcmul_(step, step)
