"""StableAdamW: AdamW whose steps are shortened where a gradient is larger than its second moment expects."""

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
from cloze.training.sharding import whole


@register("optimizer", "stable_adamw")
@dataclass(frozen=True, kw_only=True)
class StableAdamW(Moments):
    """AdamW with the update clipping of Adafactor (Wortsman et al., 2023, §3.5, alg. 2; warner-benjamin/optimi `stableadamw.py`).

    The moments m and v of a tensor with the gradient g are kept without bias, by β(1 - βᵗ⁻¹) / (1 - βᵗ) in place of β. With
    RMS = √mean(g² / max(v, ε²)), the rate of the tensor is rate / max(1, RMS): θ ← θ - rate · decay · θ - rate · m / (√v + ε).
    It takes the place of clipping gradients by their norm.

    Differs: a tensor that is sharded over ranks has one RMS, that of the whole tensor.
    """

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.99)
    epsilon: Positive = 1e-6
    weight_decay: NonNegative = 0.01
    decay: Decay = "matrices"

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        return _StableAdamWOptimizer(self.groups(parameters), self)


class _StableAdamWOptimizer(TensorwiseOptimizer):
    """State of a parameter: `step`, and `exp_avg` and `exp_avg_sq` in its shape, without bias."""

    def __init__(self, groups: list[dict[str, Any]], spec: StableAdamW) -> None:
        super().__init__(groups, {})
        self.spec = spec

    def update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """Decay, and a step shortened to the size of the gradients so far."""
        steps, epsilon = int(self.count(parameter)), self.spec.epsilon
        first, second = (_unbiased(beta, steps) for beta in self.spec.betas)
        mean, square = self.moments(parameter, gradient, (first, second))
        root = square.sqrt()
        size = whole(torch.linalg.vector_norm(gradient / root.clamp(min=epsilon))) / parameter.numel() ** 0.5
        rate = group["lr"] / size.clamp(min=1.0)
        parameter.mul_(1 - rate * group["weight_decay"]).sub_(mean.div(root.add_(epsilon)).mul_(rate))


def _unbiased(beta: float, step: int) -> float:
    """The weight of the mean so far at which a moving average that starts at 0 has no bias after `step` gradients.

    >>> _unbiased(0.9, 1), round(_unbiased(0.9, 2), 4)
    (0.0, 0.4737)
    """
    return beta * (1 - beta ** (step - 1)) / (1 - beta**step)
