"""Adamax as MT-DNN's code has it: Adam's step over the largest gradient so far in place of a root mean square."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, NonNegative, Positive
from cloze.registry import register
from cloze.training.optimizers.optimizers import Decay, Moments, Named
from cloze.training.optimizers.tensorwise import TensorwiseOptimizer


@register("optimizer", "adamax")
@dataclass(frozen=True, kw_only=True)
class Adamax(Moments):
    """Adamax (Kingma and Ba, 2015, alg. 2) without bias correction, with decay times the rate (namisan/mt-dnn v0.1,
    `module/bert_optim.py`).

    m ← β₁ m + (1 - β₁) g; u ← max(β₂ u, |g| + ε); θ ← θ - rate · (m / (u + ε) + decay · θ). The authors' code decays all tensors,
    because it reads the decay from its defaults, not from the groups.
    """

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    epsilon: Positive = 1e-6
    weight_decay: NonNegative = 0.01
    decay: Decay = "all"

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        return _AdamaxOptimizer(self.groups(parameters), self)


class _AdamaxOptimizer(TensorwiseOptimizer):
    """State of a parameter: `exp_avg`, and `exp_inf`, the largest gradient so far; both in its shape."""

    def __init__(self, groups: list[dict[str, Any]], spec: Adamax) -> None:
        super().__init__(groups, {})
        self.spec = spec

    def update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """The mean gradient over the largest one, and decay."""
        state, (first, second) = self.state[parameter], self.spec.betas
        if "exp_avg" not in state:
            state["exp_avg"], state["exp_inf"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        mean = state["exp_avg"].lerp_(gradient, 1 - first)
        largest = torch.maximum(state["exp_inf"].mul_(second), gradient.abs().add_(self.spec.epsilon), out=state["exp_inf"])
        update = mean / (largest + self.spec.epsilon)
        parameter.sub_(update.add_(parameter, alpha=group["weight_decay"]), alpha=group["lr"])
