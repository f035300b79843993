"""Muon: momentum whose every matrix is made orthogonal, for the matrices inside layers; AdamW for the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from cloze.registry import register
from cloze.training.sharding import spread, whole
from cloze.training.stacked import stacked

#: The quintic whose five steps bring every singular value near 1 (Jordan et al., 2024).
QUINTIC = (3.4445, -4.7750, 2.0315)


@register("optimizer", "muon")
@dataclass(frozen=True, kw_only=True)
class Muon:
    """Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024).

    M ← μ·M + G; O = the nearest orthogonal matrix to G + μ·M, by `steps` of a quintic Newton-Schulz iteration;
    W ← W - rate · (0.2·√max(n, m) · O + `weight_decay` · W). The factor gives a step the root mean square of AdamW's (Liu et
    al., "Muon is Scalable for LLM Training", 2025, §2.2), so that one rate serves both. Queries, keys and values, kept in one
    tensor, are matrices of their own. Tensors outside layers (tables, heads) and vectors are AdamW's: `betas`, `epsilon`;
    `weight_decay` concerns matrices of both kinds.
    """

    momentum: float = 0.95
    steps: int = 5
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-8
    weight_decay: float = 0.01

    def build(self, parameters: Iterable[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        """The optimiser over these named parameters."""
        named = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
        inside = [(name, parameter) for name, parameter in named if parameter.dim() == 2 and ".layers." in name]
        taken = {id(parameter) for _, parameter in inside}
        others = [parameter for _, parameter in named if id(parameter) not in taken]
        stacks: dict[int, list[nn.Parameter]] = {}
        for name, parameter in inside:
            stacks.setdefault(stacked(name), []).append(parameter)
        made: list[dict[str, Any]] = [
            {"params": part, "stacked": count, "weight_decay": self.weight_decay} for count, part in stacks.items()
        ]
        for part, decay in ([p for p in others if p.dim() > 1], self.weight_decay), ([p for p in others if p.dim() < 2], 0.0):
            made += [{"params": part, "stacked": 0, "weight_decay": decay}] if part else []
        return _MuonOptimizer(made, self)


class _MuonOptimizer(torch.optim.Optimizer):
    """State: `momentum` of a matrix inside a layer; `step`, `exp_avg` and `exp_avg_sq` of anything else."""

    def __init__(self, made: list[dict[str, Any]], spec: Muon) -> None:
        super().__init__(made, {
            "lr": 0.0, "mu": spec.momentum, "steps": spec.steps, "betas": spec.betas, "epsilon": spec.epsilon,
        })

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            with_gradient = [parameter for parameter in group["params"] if parameter.grad is not None]
            if with_gradient and group["stacked"]:
                self._orthogonal(with_gradient, group)
            elif with_gradient:
                self._adam(with_gradient, group)

    def _orthogonal(self, parameters: list[nn.Parameter], group: Mapping[str, Any]) -> None:
        """Matrices of one shape are brought to orthogonality together."""
        shapes: dict[tuple[int, ...], list[tuple[nn.Parameter, Tensor]]] = {}
        for parameter in parameters:
            gradient, state = parameter.grad, self.state[parameter]
            assert gradient is not None
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["momentum"].mul_(group["mu"]).add_(gradient)
            ahead = whole(gradient.add(state["momentum"], alpha=group["mu"])).float()
            cut = ahead.reshape(group["stacked"], -1, ahead.shape[1])
            shapes.setdefault(tuple(cut.shape[1:]), []).append((parameter, cut))
        for shape, made in shapes.items():
            turned = orthogonal(torch.cat([cut for _, cut in made]), group["steps"])
            size = group["lr"] * 0.2 * math.sqrt(max(shape))
            for (parameter, _), update in zip(made, turned.split([len(cut) for _, cut in made]), strict=True):
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
                parameter.add_(spread(update.reshape(parameter.shape).to(parameter.dtype), parameter), alpha=-size)

    def _adam(self, parameters: list[nn.Parameter], group: Mapping[str, Any]) -> None:
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if "step" not in state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        means, squares, steps = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step"))
        tensors: list[Tensor] = list(parameters)
        adamw(
            tensors, [parameter.grad for parameter in parameters if parameter.grad is not None], means, squares, [], steps,
            fused=True, amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
            weight_decay=group["weight_decay"], eps=group["epsilon"], maximize=False,
        )


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """(N, n, m) → near the orthogonal factor of each: U Vᵀ of its singular value decomposition, values in about 0.7 to 1.2.

    In bfloat16, which the iteration bears; float64 stays float64.
    """
    a, b, c = QUINTIC
    x = matrices if matrices.dtype == torch.float64 else matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.float().norm(dim=(1, 2), keepdim=True).to(x.dtype) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)
