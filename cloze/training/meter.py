"""Sums between two log events, kept on the device and read once per event."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cloze.errors import RunError
from cloze.objectives import Loss
from cloze.training.distribution import Ranks


class StepTotals(NamedTuple):
    """What one step has: on this rank, or summed over all ranks.

    `targets` are the sums of target weights by objective. `cells` are tokens and padding: tokens / cells is how full the
    batches are. `flops` are floating-point operations. `seconds` of training are 0 on all ranks but the first, so that
    their sum is rank 0's. `stops` is 1 on a rank that had a signal.
    """

    targets: Mapping[str, float]
    tokens: float = 0.0
    cells: float = 0.0
    examples: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0
    stops: float = 0.0

    def to_vector(self) -> list[float]:
        """The numbers (objectives + 6,): the targets, then the other fields, each in their order."""
        _, *figures = self
        return [*self.targets.values(), *figures]

    def from_vector(self, vector: Iterable[float]) -> StepTotals:
        """The inverse of `to_vector`, for the same objectives."""
        numbers = iter(vector)
        targets = {name: next(numbers) for name in self.targets}
        return StepTotals(targets, *numbers)

    def over(self, ranks: Ranks) -> StepTotals:
        """The sums over all ranks. One collective."""
        return self.from_vector(ranks.add(self.to_vector()))

    def divisors(self, divide: str) -> dict[str, float]:
        """What the loss of each objective is divided by: its `targets`, the `rows` of the step, or `nothing`."""
        if divide == "targets":
            return dict(self.targets)
        return dict.fromkeys(self.targets, self.examples if divide == "rows" else 1.0)


class Meter:
    """Losses, metrics, targets and gradient norms since the last log event.

    `single`: the run has one objective. Its weight only scales gradients, so its loss is logged unweighted.
    """

    def __init__(self, single: bool = False) -> None:
        self.single = single
        self.clear()

    def clear(self) -> None:
        """Reset all sums and the timer."""
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}  # what metrics are divided by instead of the targets (`Loss.counts`)
        self.targets: dict[str, float] = {}
        self.weights: dict[str, float] = {}
        self.norms: list[tuple[int, Tensor]] = []
        self.tokens = self.cells = self.flops = 0.0
        self.started = time.perf_counter()

    def add_losses(self, losses: Mapping[str, Loss]) -> None:
        """Add one micro-batch of this rank, by objective."""
        for name, loss in losses.items():
            _add(self.sums, name, loss.total)
            for metric, value in loss.metrics.items():
                _add(self.sums, f"{name}.{metric}", value)
            for metric, count in loss.counts.items():
                _add(self.counts, f"{name}.{metric}", count)

    def add_step(self, step: int, norm: Tensor | None, totals: StepTotals, weights: Mapping[str, float]) -> None:
        """Add the totals of a step over all ranks, its gradient norm and the weights of its objectives."""
        for name, count in totals.targets.items():
            self.targets[name] = self.targets.get(name, 0.0) + count
        self.weights.update(weights)
        if norm is not None:
            self.norms.append((step, norm))
        self.tokens += totals.tokens
        self.cells += totals.cells
        self.flops += totals.flops

    def add_ranks(self, ranks: Ranks) -> None:
        """Add the targets of the other ranks, if the steps were added with those of this rank alone. A collective."""
        self.targets = dict(zip(self.targets, ranks.add(list(self.targets.values())), strict=True))

    def means(self, ranks: Ranks) -> dict[str, Any]:
        """`loss`, `objectives` and `metrics` over all ranks. A collective, and the one wait for the device.

        Objectives that no row had a target for are left out: a mean of nothing is not a loss of 0.
        """
        # A metric is OBJECTIVE.METRIC; the name of an objective may have a dot, too.
        owners = {name: name if name in self.targets else name.rpartition(".")[0] or name for name in self.sums}
        names = sorted(name for name in self.sums if self.targets.get(owners[name]) != 0.0)
        counted = [name for name in names if name in self.counts]
        tensors = [*(self.sums[name] for name in names), *(self.counts[name] for name in counted)]
        totals = ranks.add(torch.stack(tensors).tolist() if tensors else [])
        counts = {name: self.targets.get(owners[name], 0.0) for name in names}
        counts |= dict(zip(counted, totals[len(names) :], strict=True))
        averages = {name: total / max(counts[name], 1.0) for name, total in zip(names, totals, strict=False)}
        objectives = {name: value for name, value in averages.items() if owners[name] == name}
        weights = dict.fromkeys(objectives, 1.0) if self.single else self.weights
        return {
            "loss": sum(weights.get(name, 1.0) * value for name, value in objectives.items()),
            "objectives": objectives,
            "metrics": {name: value for name, value in averages.items() if owners[name] != name},
        }

    def check(self) -> None:
        """Raise a `RunError` that names the first step whose gradient norm is not finite."""
        norms = torch.stack([norm for _, norm in self.norms]).tolist() if self.norms else []
        for (step, _), norm in zip(self.norms, norms, strict=True):
            if not math.isfinite(norm):
                raise NotFinite(step, norm)

    def speed(self, peak: float) -> dict[str, float | None]:
        """The last gradient norm, tokens per second, how full the batches were, and the model FLOP utilization (0 to 1).

        `peak` is the FLOP/s of all ranks in matrix products.
        """
        seconds = time.perf_counter() - self.started
        return {
            "grad_norm": float(self.norms[-1][1]) if self.norms else None,
            "tokens_per_second": self.tokens / seconds if seconds > 0 else 0.0,
            "filled": self.tokens / max(self.cells, 1.0),
            "mfu": self.flops / seconds / peak,
        }


def _add(sums: dict[str, Tensor], name: str, value: Tensor) -> None:
    value = value.detach().float()
    sums[name] = sums[name] + value if name in sums else value


class NotFinite(RunError):
    """The loss or its gradient is not finite."""

    def __init__(self, step: int, norm: float) -> None:
        super().__init__(
            f"step {step}: the loss or its gradient is not finite (gradient norm {norm}); this is not saved.\n"
            "  The last checkpoint is whole. Start a new run with a lower peak of training.rate, with training.clip: 1.0, "
            "or with training.precision: fp32."
        )
        self.step = step
