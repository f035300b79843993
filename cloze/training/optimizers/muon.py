"""Muon: the matrices of layers move by the orthogonal part of their momentum, everything else as under AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, NonNegative, Positive
from cloze.networks.blocks.projections import stacked
from cloze.registry import register
from cloze.training.optimizers.optimizers import Decay, EagerAdamW, Family, Moments, Named, groups
from cloze.training.precision import as_dtype
from cloze.training.sharding import spread, whole

#: The coefficients of the iteration, which takes singular values from (0, 1] to about 1 (Jordan et al., 2024).
_LINEAR, _CUBIC, _QUINTIC = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
#: Parameters of one shape that are made orthogonal in one call, which small matrices need to be fast.
_TOGETHER = 8


@register("optimizer", "muon")
@dataclass(frozen=True, kw_only=True)
class Muon(Moments):
    """Muon for the matrices of layers, AdamW for embeddings, heads, biases and norms (Jordan et al., 2024, KellerJordan/Muon).

    Of a matrix W (n, m) with the gradient G, the momentum is M ← μ M + (1 - μ) G with μ = `momentum`. With U, the orthogonal part
    of (1 - μ) G + μ M (Newton-Schulz, five iterations): W ← W - rate · decay · W - rate · 0.2 √max(n, m) · U. By this factor, the
    elements of W move about as far as under AdamW (Liu et al., 2025, §2.2, arXiv:2502.16982). Queries, keys and values, stacked
    here, are made orthogonal one by one.

    Differs: the iteration computes in float32 where the hardware does not multiply bfloat16 matrices. Under sharding, every rank
    computes the whole update of every matrix.
    """

    betas: tuple[BelowOne, BelowOne] = (0.9, 0.95)
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.1
    decay: Decay = "matrices"
    momentum: BelowOne = 0.95

    family: ClassVar[Family | None] = "muon"

    def build(self, parameters: Named) -> torch.optim.Optimizer:
        """The optimizer over these named parameters."""
        pairs = list(parameters)
        inner = {id(parameter): stacked(name) for name, parameter in pairs if parameter.dim() == 2 and ".layers." in f".{name}"}
        param_groups = self.groups((name, parameter) for name, parameter in pairs if id(parameter) not in inner)
        for count in sorted(set(inner.values())):
            matrices = [(name, parameter) for name, parameter in pairs if inner.get(id(parameter)) == count]
            param_groups += [
                {**group, "stacked": count}
                for group in groups(matrices, weight_decay=self.weight_decay, decay=self.decay)
            ]
        return _MuonOptimizer(param_groups, self)


class _MuonOptimizer(EagerAdamW):
    """Groups with `stacked` hold matrices of layers, with the state `step` and `momentum`; the others are AdamW's."""

    def __init__(self, groups: list[dict[str, Any]], spec: Muon) -> None:
        super().__init__(groups, betas=spec.betas, eps=spec.epsilon, fused=True)
        self.momentum = spec.momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of everything that has a gradient.

        A parameter (K N, M) of K = `stacked` matrices is taken as (K, N, M). The matrices of several
        parameters are joined along the first axis, made orthogonal in one call and divided again.
        """
        everything = self.param_groups
        for same in self._same_shapes():
            parts = [self._ahead(matrix, group["stacked"]) for matrix, group in same]  # (K, N, M) each
            changes = orthogonal(torch.cat(parts)).split([len(part) for part in parts])
            for (matrix, group), change in zip(same, changes, strict=True):
                size = 0.2 * max(change.shape[1:]) ** 0.5
                whole_change = change.reshape(matrix.shape).to(matrix.dtype)  # (K, N, M) to (K N, M)
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(spread(whole_change, matrix), alpha=-group["lr"] * size)
        self.param_groups = [group for group in everything if "stacked" not in group]  # AdamW's `step` takes all of these
        try:
            super().step()
        finally:
            self.param_groups = everything

    def _same_shapes(self) -> Iterator[list[tuple[nn.Parameter, dict[str, Any]]]]:
        """Matrices with a gradient and their groups, a few of one shape at a time."""
        shapes: dict[tuple[int, int], list[tuple[nn.Parameter, dict[str, Any]]]] = {}
        for group in self.param_groups:
            for matrix in group["params"] if "stacked" in group else ():
                if matrix.grad is not None:
                    rows, columns = matrix.shape
                    shapes.setdefault((rows // group["stacked"], columns), []).append((matrix, group))
        for same in shapes.values():
            for first in range(0, len(same), _TOGETHER):
                yield same[first : first + _TOGETHER]

    def _ahead(self, matrix: nn.Parameter, count: int) -> Tensor:
        """The gradient and the momentum after it, mixed: `count` matrices (K, N, M), whole."""
        gradient, state = matrix.grad, self.state[matrix]
        assert gradient is not None
        if "momentum" not in state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(matrix)
        state["step"] += 1
        momentum: Tensor = state["momentum"].lerp_(gradient, 1 - self.momentum)
        ahead = whole(gradient.lerp(momentum, self.momentum))
        return ahead.view(count, -1, ahead.shape[1])


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (K, N, M) with the singular vectors of these and singular values near 1, in bfloat16 if the hardware has it.

    Newton-Schulz: with S = X Xᵀ, X ← a X + (b S + c S²) X maps each singular value σ to a σ + b σ³ + c σ⁵.
    """
    x = matrices.to(as_dtype("auto", matrices.device))
    # Divided by the Frobenius norm, (K, 1, 1), no singular value is above 1.
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall:  # so that S is min(N, M) wide
        x = x.mT
    for _ in range(_ITERATIONS):
        square = x @ x.mT  # S
        polynomial = torch.baddbmm(square, square, square, beta=_CUBIC, alpha=_QUINTIC)  # b S + c S²
        x = torch.baddbmm(x, polynomial, x, beta=_LINEAR)  # a X + (b S + c S²) X
    return x.mT if tall else x
