"""An optimizer for each part of the model: embeddings, layers, heads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from cloze.bounds import Positive
from cloze.errors import RecipeError
from cloze.registry import Part, register
from cloze.training.optimizers.optimizers import ModelPart, Named, OptimizerSpec, clip, gradient_norm

if TYPE_CHECKING:
    OptimizerPart = OptimizerSpec
    OptionalPart = OptimizerSpec | None
else:
    OptimizerPart = OptionalPart = Part["optimizer"]


@register("optimizer", "by_depth")
@dataclass(frozen=True, kw_only=True)
class ByDepth(OptimizerSpec):
    """Embeddings, layers and heads have an optimizer each; without one of their own, embeddings have that of the layers.

    SiATL trains the LSTMs and the table of a language model by SGD and a new classifier by Adam (alexandra-chron/siatl,
    `models/sent_clf.py`). The rates of the parts are multiples of the one rate: `layerwise_rates: {parts: …}`. `clip` cuts the
    gradients of each part to this norm, in place of `training.clip`, which is for all of them together. Optimizers that average
    weights are refused: a mean of some of them belongs to no model.
    """

    layers: OptimizerPart
    heads: OptimizerPart
    embeddings: OptionalPart = None
    clip: Positive | None = None

    def __post_init__(self) -> None:
        for part, spec in self._specs().items():
            if spec.averages or spec.follows_losses:
                raise RecipeError(
                    f"training.optimizer.by_depth.{part}: this optimizer averages the weights that it trains, and there would be "
                    "no mean of the others.\n  Take another one; `training.average` keeps a mean of all weights."
                )

    def _specs(self) -> dict[ModelPart, OptimizerSpec]:
        return {"embeddings": self.embeddings or self.layers, "layers": self.layers, "heads": self.heads}

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over parameters that all belong to layers."""
        return self.build_by_part(parameters, lambda parameter: "layers")

    def build_by_part(self, parameters: Named, part_of: Callable[[nn.Parameter], ModelPart]) -> torch.optim.Optimizer:
        """The optimizers of the parts, as one."""
        trained = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
        members = {part: [pair for pair in trained if part_of(pair[1]) == part] for part in self._specs()}
        optimizers = {part: spec.build(members[part]) for part, spec in self._specs().items() if members[part]}
        return _JoinedOptimizer(optimizers, self.clip)


class _JoinedOptimizer(torch.optim.Optimizer):
    """Several optimizers as one, with the groups and the state of all; a group has the name of its `part`."""

    def __init__(self, optimizers: Mapping[ModelPart, torch.optim.Optimizer], longest: float | None) -> None:
        joined = [{**group, "part": part} for part, optimizer in optimizers.items() for group in optimizer.param_groups]
        super().__init__(joined, {})
        self.optimizers, self.longest = optimizers, longest
        for optimizer in optimizers.values():
            self.state.update(optimizer.state)
            optimizer.state = self.state

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of every part that has a gradient. The groups may have been split since."""
        for part, optimizer in self.optimizers.items():
            optimizer.param_groups = [group for group in self.param_groups if group["part"] == part]
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            if self.longest is not None:
                clip(parameters, gradient_norm(parameters), self.longest)
            optimizer.step()
