"""Means of the weights: the run is measured and exported with them, while training itself continues from the weights.

Averaged SGD takes the mean over a late part of the run; `following` keeps an exponential mean next to any optimizer. A mean is
part of the optimizer's state (`average`), so checkpoints hold it, whole where it is sharded. The session measures and exports
with `averages` and `averaged`, and gives the optimizer every held-out loss (`observe_loss`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import Natural, NonNegative
from cloze.errors import RecipeError
from cloze.registry import register
from cloze.training.optimizers.optimizers import Family, OptimizerSpec
from cloze.uncompiled import Eager

Named = Iterable[tuple[str, nn.Parameter]]


@register("optimizer", "asgd")
@dataclass(frozen=True, kw_only=True)
class AveragedSGD(OptimizerSpec):
    """SGD that averages its weights from step `after` on (Polyak and Juditsky, 1992); `weight_decay` is added to gradients."""

    family: ClassVar[Family | None] = "sgd"
    averages: ClassVar[bool] = True

    after: Natural = 0
    weight_decay: NonNegative = 0.0

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        return AveragingOptimizer(parameters, weight_decay=self.weight_decay, after=self.after)


@register("optimizer", "nt_asgd")
@dataclass(frozen=True, kw_only=True)
class TriggeredSGD(OptimizerSpec):
    """SGD that starts to average when held-out losses stop falling (NT-ASGD; Merity et al., 2018, alg. 1).

    The trigger is the first evaluation whose loss is above the lowest of all except the last `patience` ones, so that
    `training.evaluate_every` is part of the method. `weight_decay` is added to gradients of all parameters.

    Differs: the mean is over all weights from the trigger on; torch's ASGD, which the authors use, leaves out the first.
    """

    patience: Natural = 5
    weight_decay: NonNegative = 0.0
    follows_losses: ClassVar[bool] = True
    family: ClassVar[Family | None] = "sgd"
    averages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise RecipeError(f"nt_asgd.patience: {self.patience} evaluations; expected 1 or more.")

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        return AveragingOptimizer(parameters, weight_decay=self.weight_decay, after=None, patience=self.patience)


class AveragingOptimizer(Eager):
    """SGD with the mean of the weights from step `after` on; None: from the trigger in `observe` on.

    State: every parameter has its `average`, of its shape, once there is one. An optimizer's state belongs to
    parameters, so what concerns all of them is in the state of the first one, as 0-dim tensors:

        steps           updates so far
        averaged        weights that the mean has taken up; absent before the first
        lowest          the lowest held-out loss, without the last `patience`
        recent_0, …     the last `patience` held-out losses, the oldest first
    """

    def __init__(self, parameters: Named, *, weight_decay: float, after: int | None, patience: int = 5) -> None:
        trained = [parameter for _, parameter in parameters if parameter.requires_grad]
        super().__init__(trained, {"lr": 0.0, "weight_decay": weight_decay})
        self.after, self.patience = after, patience

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            gradients: list[Tensor] = [parameter.grad for parameter in parameters]
            if group["weight_decay"] and parameters:
                gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
            if parameters:
                torch._foreach_add_(parameters, gradients, alpha=-group["lr"])
        counters = self._counters
        counters["steps"] = counters.get("steps", torch.zeros(())) + 1
        if self.after is not None and int(counters["steps"]) > self.after:
            counters.setdefault("averaged", torch.zeros(()))
        if "averaged" in counters:
            counters["averaged"] = counters["averaged"] + 1
            self._average(1.0 / float(counters["averaged"]))  # mean += (weight - mean) / n

    def observe(self, held_out: float) -> None:
        """Record a held-out loss, and start to average if it is no better than the best of more than `patience` losses ago."""
        counters = self._counters
        if self.after is not None or "averaged" in counters:
            return
        if "lowest" in counters and held_out > float(counters["lowest"]):
            counters["averaged"] = torch.zeros(())
        recent = [float(counters[name]) for name in self._recent() if name in counters] + [held_out]
        if len(recent) > self.patience:
            lowest = min(float(counters.get("lowest", recent[0])), recent[0])
            counters["lowest"] = torch.tensor(lowest, dtype=torch.float64)
            recent = recent[1:]
        for name, loss in zip(self._recent(), recent, strict=False):
            counters[name] = torch.tensor(loss, dtype=torch.float64)

    def _average(self, share: float) -> None:
        for parameter in self._parameters():
            state = self.state[parameter]
            if "average" not in state:
                state["average"] = parameter.detach().clone()
            else:
                state["average"].lerp_(parameter, share)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @property
    def _counters(self) -> dict[str, Any]:
        counters: dict[str, Any] = self.state[self._parameters()[0]]
        return counters

    def _recent(self) -> list[str]:
        return [f"recent_{number}" for number in range(self.patience)]


@contextmanager
def averaging_weights(optimizer: torch.optim.Optimizer, decay: float | None) -> Iterator[None]:
    """A context for one update, after which the mean of each weight takes it up: mean ← decay · mean + (1 - decay) · weight.

    The mean starts equal to the weight before its first update (ltgoslo/gpt-bert `train_multi_gpu.py`). Without `decay` nothing
    is kept.
    """
    if decay is None:
        yield
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    first = [p for p in parameters if p.grad is not None and "average" not in optimizer.state.get(p, {})]
    before = [parameter.detach().clone() for parameter in first]
    yield
    for parameter, start in zip(first, before, strict=True):
        optimizer.state[parameter]["average"] = start
    with torch.no_grad():
        for parameter in parameters:
            if "average" in optimizer.state.get(parameter, {}):
                optimizer.state[parameter]["average"].lerp_(parameter, 1.0 - decay)


@contextmanager
def averages(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """A context in which the parameters are those to evaluate: their means, where the optimizer has any."""
    means = [(parameter, state["average"]) for parameter, state in optimizer.state.items() if "average" in state]
    copies = [parameter.detach().clone() for parameter, _ in means]
    with torch.no_grad():
        for parameter, mean in means:
            parameter.copy_(mean)
    try:
        yield
    finally:
        with torch.no_grad():
            for (parameter, _), copy in zip(means, copies, strict=True):
                parameter.copy_(copy)


def averaged(optimizer: torch.optim.Optimizer, gather: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor] | None:
    """Copies of what `gather` returns while the parameters hold their means; None if there are none."""
    if not any("average" in state for state in optimizer.state.values()):
        return None
    with averages(optimizer):
        return {name: tensor.clone() for name, tensor in gather().items()}


def observe_loss(optimizer: torch.optim.Optimizer, held_out: float) -> None:
    """Give an averaging optimizer the held-out loss of an evaluation."""
    if isinstance(optimizer, AveragingOptimizer):
        optimizer.observe(held_out)
