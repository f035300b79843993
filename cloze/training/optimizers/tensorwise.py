"""The frame of optimizers that update one tensor after another: LAMB, StableAdamW, Adafactor and GloVe's AdaGrad."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cloze.uncompiled import Eager


class TensorwiseOptimizer(Eager, ABC):
    """A subclass says in `update` how one tensor moves."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every tensor that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, group)

    @abstractmethod
    def update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """Move the parameter in place; `group` is its parameter group, with the rate `lr`."""

    def moments(self, parameter: nn.Parameter, gradient: Tensor, betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Adam's moving averages of the gradient and of its square, after this gradient.

        They are the state `exp_avg` and `exp_avg_sq`, in the parameter's shape, and start at 0.
        """
        state, (first, second) = self.state[parameter], betas
        if "exp_avg" not in state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        mean: Tensor = state["exp_avg"].lerp_(gradient, 1 - first)
        square: Tensor = state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        return mean, square

    def count(self, parameter: nn.Parameter, device: torch.device | None = None) -> Tensor:
        """How many gradients the parameter has had, with this one: the state `step`, one float32 on the device or the CPU."""
        state = self.state[parameter]
        steps: Tensor = state.get("step", torch.zeros((), device=device)) + 1
        state["step"] = steps
        return steps
