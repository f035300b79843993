"""Adafactor: second moments of a matrix as a row and a column, steps in proportion to the size of what they change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import Count, Positive
from cloze.networks.blocks.projections import stacked
from cloze.registry import register
from cloze.training.optimizers.optimizers import Family, OptimizerSpec
from cloze.training.optimizers.tensorwise import TensorwiseOptimizer
from cloze.training.sharding import spread, whole


@register("optimizer", "adafactor")
class Adafactor(OptimizerSpec):
    """Adafactor as T5's code runs it (Shazeer and Stern, 2018, alg. 4 and 5; mesh_tensorflow `optimize.py`).

    With G the gradient and β = 1 - t^-`decay_exponent`: the means of G² + ε₁ over rows and over columns decay by β and give
    V̂ = row · column / mean(row); tensors with a side below `smallest` or another number of dimensions than two keep V̂ whole.
    U = G / √V̂, divided by max(1, RMS(U) / `clip`); W ← W - rate · max(ε₂, RMS(W)) · U with `relative`, else W - rate · U.
    No first moment, no bias correction, no weight decay. Differs: under sharding every rank computes the whole update of
    one tensor after the other.
    """

    family: ClassVar[Family | None] = "adafactor"

    def __init__(
        self,
        *,
        decay_exponent: Positive = 0.8,
        epsilons: tuple[Positive, Positive] = (1e-30, 1e-3),
        clip: Positive = 1.0,
        smallest: Count = 128,
        relative: bool = True,
    ) -> None:
        self.options = {
            "decay_exponent": decay_exponent, "epsilons": epsilons, "clip": clip, "smallest": smallest, "relative": relative
        }  # fmt: skip

    def build(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        stacks: dict[int, list[nn.Parameter]] = {}
        for name, parameter in parameters:
            if parameter.requires_grad:
                stacks.setdefault(stacked(name), []).append(parameter)
        groups = [{"params": stack, "stacked": count, "lr": 0.0} for count, stack in stacks.items()]
        return _AdafactorOptimizer(groups, self.options)


class _AdafactorOptimizer(TensorwiseOptimizer):
    """State of a parameter: `step`, and `row` (N, n) with `column` (N, m), or `square` in the parameter's shape."""

    def update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """The change of the whole tensor, of which this rank takes its part."""
        parameter.add_(spread(self._change(parameter, gradient, group), parameter), alpha=-group["lr"])

    def _change(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> Tensor:
        """The update in units of the rate, whole."""
        shape = (group["stacked"], parameter.shape[0] // group["stacked"], *parameter.shape[1:]) if parameter.dim() else (1,)
        gradient, weight = (whole(tensor).float().reshape(shape) for tensor in (gradient, parameter))
        state = self.state[parameter]
        mixing = self.count(parameter, gradient.device) ** -group["decay_exponent"]
        first, second = group["epsilons"]
        square = gradient.square() + first
        if len(shape) == 3 and min(shape[1:]) >= group["smallest"]:
            row = _mixed(state, "row", square.mean(2), mixing)
            column = _mixed(state, "column", square.mean(1), mixing)
            update = gradient * (row / row.mean(1, keepdim=True)).rsqrt()[:, :, None] * column.rsqrt()[:, None]
        else:
            squares = _mixed(state, "square", square.reshape(parameter.shape), mixing)
            update = gradient * squares.reshape(shape).rsqrt()
        update = update / (_size(update) / group["clip"]).clamp(min=1.0)
        if group["relative"]:
            update = update * _size(weight).clamp(min=second)
        return update.reshape(parameter.shape).to(parameter.dtype)


def _mixed(state: dict[str, Any], key: str, new: Tensor, mixing: Tensor) -> Tensor:
    """The running mean under `key` with a share `mixing` of `new`; the first share is 1."""
    state[key] = torch.lerp(whole(state[key]), new, mixing) if key in state else new
    mean: Tensor = state[key]
    return mean


def _size(x: Tensor) -> Tensor:
    """The root mean square of each stacked matrix or vector, shaped to divide `x` (N, …)."""
    return x.square().flatten(1).mean(1).sqrt().view(-1, *[1] * (x.dim() - 1)) if x.dim() > 1 else x.abs()
