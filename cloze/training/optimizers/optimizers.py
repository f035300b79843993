"""Optimizers: parts of a recipe whose `build(parameters)` returns a torch optimizer with a state of plain tensors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, NonNegative, Positive
from cloze.networks.blocks.projections import stacked
from cloze.registry import register
from cloze.training.optimizers.tensorwise import TensorwiseOptimizer
from cloze.training.sharding import spread, whole
from cloze.uncompiled import Eager

Decay = Literal["matrices", "all"]
Named = Iterable[tuple[str, nn.Parameter]]
ModelPart = Literal["embeddings", "layers", "heads"]

#: From here on adding 1 does not change a float32 counter, and 0.999 ** counter is exactly 0.
_SETTLED = float(2**24)


#: Optimizers with rates of one size.
Family = Literal["adam", "muon", "lamb", "adafactor", "sgd", "adagrad"]


class OptimizerSpec(ABC):
    """The value of `training.optimizer`: the base class of every optimizer.

    `follows_losses`: it looks at the held-out losses, so that `evaluate_every` is part of a recipe's hash. `family` names the
    optimizer whose rates suit it (see `cloze/budget/peaks.py`); None: no rate was measured. `updates`: how many times as many
    updates it should get from a small budget as Adam, each from a smaller batch. `averages`: runs are measured and exported with
    a mean of the weights that it keeps.
    """

    follows_losses: ClassVar[bool] = False
    averages: ClassVar[bool] = False
    family: ClassVar[Family | None] = None
    updates: ClassVar[int] = 1

    @abstractmethod
    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""

    def build_by_part(self, parameters: Named, part_of: Callable[[nn.Parameter], ModelPart]) -> torch.optim.Optimizer:
        """The same, with the part of the model that each parameter belongs to; most optimizers treat all alike."""
        return self.build(parameters)


def groups(parameters: Named, *, weight_decay: float, decay: Decay) -> list[dict[str, Any]]:
    """Parameter groups with and without weight decay; parameters without gradient are left out.

    `matrices` decays tensors of two or more dimensions, including embeddings, but no bias and no norm.
    """
    pairs = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
    decayed = [(name, p) for name, p in pairs if decay == "all" or p.dim() > 1]
    spared = [(name, p) for name, p in pairs if not (decay == "all" or p.dim() > 1)]
    parts = [(decayed, weight_decay), (spared, 0.0)]
    return [{"params": [p for _, p in part], "weight_decay": value, "lr": 0.0} for part, value in parts if part]


@dataclass(frozen=True, kw_only=True)
class Moments(OptimizerSpec):
    """The arguments of every optimizer with two moments; `decay` says which tensors decay."""

    family: ClassVar[Family | None] = "adam"

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.999)
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.01
    decay: Decay = "matrices"

    def groups(self, parameters: Named) -> list[dict[str, Any]]:
        """The parameters with and without decay."""
        return groups(parameters, weight_decay=self.weight_decay, decay=self.decay)


class EagerAdamW(Eager, torch.optim.AdamW):
    """AdamW of torch."""


@register("optimizer", "adamw")
@dataclass(frozen=True, kw_only=True)
class AdamW(Moments):
    """Adam with bias correction and decoupled weight decay (Loshchilov and Hutter, 2019, alg. 2), in one fused kernel."""

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        param_groups = self.groups(parameters)
        return EagerAdamW(param_groups, betas=self.betas, eps=self.epsilon, fused=True)


@register("optimizer", "bert_adam")
@dataclass(frozen=True, kw_only=True)
class BertAdam(Moments):
    """The Adam of BERT's code (google-research/bert `optimization.py`): no bias correction, decay times the rate.

    u = m / (√v + ε) + decay · θ; θ ← θ − rate · u. Without correction the first steps are about three times larger.
    `tensor_clip` cuts the gradient of each tensor to this norm, as BertAdam of pytorch-pretrained-BERT (`optimization.py`,
    max_grad_norm) does in place of a cut of all gradients together; queries, keys and values, stacked here, are three tensors.

    Differs: on TPUs the code of BERT, ALBERT, ELECTRA and ORQA clips the gradient of each core and adds them up
    (tensorflow/python/tpu/tpu_optimizer.py). Here `training.clip` limits their mean, in comparison with which ε is as many times
    larger as there are cores.
    """

    epsilon: Positive = 1e-6
    tensor_clip: Positive | None = None

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """AdamW's fused kernel with its step counter where both bias corrections are exactly 1: the same arithmetic.

        The counter t (), float32, begins at 2^24. There 1 - βᵗ is 1, and t + 1 rounds to t, so it stays. The
        moments have the shapes of their parameters and begin at 0, as torch would make them.
        """
        pairs = list(parameters)
        spec = AdamW(betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay, decay=self.decay)
        optimizer = spec.build(pairs)
        if self.tensor_clip is not None:
            optimizer.register_step_pre_hook(_TensorClip(self.tensor_clip, [(p, stacked(name)) for name, p in pairs]))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                optimizer.state[parameter] = {
                    "step": torch.tensor(_SETTLED, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                }
        return optimizer


@dataclass(frozen=True)
class _TensorClip:
    """Cuts the gradient of each tensor before a step; `parameters` are stacks of so many tensors."""

    longest: float
    parameters: Sequence[tuple[nn.Parameter, int]]

    @torch.no_grad()
    def __call__(self, *_: Any) -> None:
        for parameter, count in self.parameters:
            if (gradient := parameter.grad) is not None:
                factors = (self.longest / (_norms(gradient, count) + 1e-6)).clamp(max=1.0)
                gradient.mul_(factors[0] if count == 1 else _in_rows(factors, gradient))


@register("optimizer", "gpt_adam")
@dataclass(frozen=True, kw_only=True)
class GptAdam(Moments):
    """The Adam of GPT's code (openai/finetune-transformer-lm `opt.py`): matrices decay by the bias-corrected step.

    With the factor c = √(1 - β₂ᵗ) / (1 - β₁ᵗ) of step t: θ ← θ - rate · (m̂ / (√v̂ + ε) + decay · c · θ), so the decay
    starts at a third of its strength. Differs: ε is added to the corrected root, as torch does, not to √v.
    """

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        param_groups = self.groups(parameters)
        return _GptAdamOptimizer(param_groups, betas=self.betas, eps=self.epsilon, fused=True)


class _GptAdamOptimizer(EagerAdamW):
    """AdamW's fused kernel; before each step the groups' decay is multiplied by the correction of that step."""

    def __init__(self, groups: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(groups, **options)
        for group in self.param_groups:
            group["full_decay"] = float(group["weight_decay"])  # in the group itself, which may be split by depth
        self._steps: int | None = None  # read from the state once, because a restored run's state is on the device

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update."""
        if self._steps is None:
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]  # others may share the state
            self._steps = max((int(self.state[p]["step"]) for p in parameters if p in self.state), default=0)
        self._steps += 1
        first, second = self.param_groups[0]["betas"]
        correction = math.sqrt(1 - second**self._steps) / (1 - first**self._steps)
        for group in self.param_groups:
            group["weight_decay"] = group["full_decay"] * correction
        super().step()


@register("optimizer", "xlm_adam")
class XlmAdam(OptimizerSpec):
    """The Adam of XLM's code: bias-corrected; every tensor decays by the rate, including biases and norms.

    The same as `adamw` with `decay: all`.
    """

    family: ClassVar[Family | None] = "adam"

    def __init__(
        self, *, betas: tuple[BelowOne, BelowOne] = (0.9, 0.999), epsilon: Positive = 1e-8, weight_decay: NonNegative = 0.0
    ) -> None:
        self.betas, self.epsilon, self.weight_decay = betas, epsilon, weight_decay

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        return AdamW(betas=self.betas, epsilon=self.epsilon, weight_decay=self.weight_decay, decay="all").build(parameters)


@register("optimizer", "lamb")
@dataclass(frozen=True, kw_only=True)
class Lamb(Moments):
    """LAMB (You et al., 2020, alg. 2): Adam's step u, decay included, times ‖θ‖ / ‖u‖, which is 1 where either norm is 0.

    The defaults are ALBERT's code: no bias correction, no ratio for biases and norms (`ratio: matrices`), no bound on it.
    NEZHA's code has `bias_correction`, a ratio for every tensor (`ratio: all`) and `largest_ratio: 10`. Queries, keys and
    values, stacked here, have a ratio each, as in both.
    """

    family: ClassVar[Family | None] = "lamb"
    updates: ClassVar[int] = 2

    epsilon: Positive = 1e-6
    bias_correction: bool = False
    ratio: Literal["matrices", "all"] = "matrices"
    largest_ratio: Positive | None = None

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        pairs = list(parameters)
        stacks = {id(parameter): stacked(name) for name, parameter in pairs}
        param_groups: list[dict[str, Any]] = []
        for group in self.groups(pairs):
            parts: dict[int, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                parts.setdefault(stacks[id(parameter)], []).append(parameter)
            param_groups += [{**group, "params": part, "stacked": count} for count, part in parts.items()]
        return _LambOptimizer(param_groups, self)


class _LambOptimizer(TensorwiseOptimizer):
    def __init__(self, groups: list[dict[str, Any]], spec: Lamb) -> None:
        super().__init__(groups, {})
        self.spec = spec

    def update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        """Adam's step with decay, times the ratio of the norms."""
        spec = self.spec
        mean, square = self.moments(parameter, gradient, spec.betas)
        if spec.bias_correction:
            steps = self.count(parameter, parameter.device)
            mean, square = mean / (1 - spec.betas[0] ** steps), square / (1 - spec.betas[1] ** steps)
        update = mean / square.sqrt().add_(spec.epsilon)
        update.add_(parameter, alpha=group["weight_decay"])
        if spec.ratio == "all" or parameter.dim() > 1:
            update.mul_(self._ratio(parameter, update, group["stacked"]))
        parameter.add_(update, alpha=-group["lr"])

    def _ratio(self, parameter: Tensor, update: Tensor, count: int) -> Tensor:
        """‖θ‖ / ‖u‖, one number; of stacked tensors a column with that of each in its rows."""
        size, change = _norms(parameter, count), _norms(update, count)
        ratio = torch.where((size > 0) & (change > 0), size / change, torch.ones_like(size))
        if self.spec.largest_ratio is not None:
            ratio = ratio.clamp(max=self.spec.largest_ratio)
        if count == 1:
            return ratio[0]  # ()
        return _in_rows(ratio, parameter)


def _in_rows(numbers: Tensor, stack: Tensor) -> Tensor:
    """One number (count,) for each tensor of a stack as a column with one for each row of it."""
    rows = numbers.repeat_interleave(len(stack) // len(numbers))
    return spread(rows.view(-1, *[1] * (stack.dim() - 1)), stack)


def _norms(tensor: Tensor, count: int) -> Tensor:
    """The norms of `count` tensors stacked along the first axis, (count,); a collective where they are sharded."""
    if count == 1:
        return whole(torch.linalg.vector_norm(tensor)).view(1)
    rows = tensor if tensor.dim() == 1 else torch.linalg.vector_norm(tensor, dim=list(range(1, tensor.dim())))
    return torch.linalg.vector_norm(whole(rows).view(count, -1), dim=1)


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The norm of all gradients together, a 0-dim tensor; no synchronisation with the device."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    return whole(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))


def clip(parameters: Iterable[nn.Parameter], norm: Tensor, longest: float) -> None:
    """Scale all gradients so that their common `norm` is at most `longest`; no synchronisation with the device."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients or (norm.device.type == "cpu" and float(norm) <= longest):
        return
    factor = torch.clamp(longest / (norm + 1e-6), max=1.0)
    torch._foreach_mul_(gradients, float(factor) if norm.device.type == "cpu" else factor)
