"""Sums between two log events, kept on the device and read once per event."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cloze.errors import RunError
from cloze.objectives import Loss
from cloze.training.distribution import Ranks


class Meter:
    """Losses, metrics, counts and gradient norms since the last log event.

    `single`: the run has one objective. Its weight only scales gradients, so its loss is logged unweighted.
    """

    def __init__(self, single: bool = False) -> None:
        self.single = single
        self.clear()

    def clear(self) -> None:
        """Reset all sums and the timer."""
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, float] = {}
        self.weights: dict[str, float] = {}
        self.norms: list[tuple[int, Tensor]] = []
        self.tokens = self.cells = self.flops = 0.0
        self.started = time.perf_counter()

    def add_losses(self, losses: Mapping[str, Loss]) -> None:
        """Add one micro-batch of this rank, by objective."""
        for name, loss in losses.items():
            self._add(name, loss.total)
            for metric, value in loss.metrics.items():
                self._add(f"{name}.{metric}", value)

    def _add(self, name: str, value: Tensor) -> None:
        value = value.detach().float()
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def add_step(
        self, step: int, norm: Tensor | None, counts: Mapping[str, float], weights: Mapping[str, float],
        *, tokens: float = 0.0, cells: float = 0.0, flops: float = 0.0,
    ) -> None:
        """Add the figures of a whole step, all ranks together."""
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0.0) + count
        self.weights.update(weights)
        if norm is not None:
            self.norms.append((step, norm))
        self.tokens, self.cells, self.flops = self.tokens + tokens, self.cells + cells, self.flops + flops

    def means(self, ranks: Ranks) -> dict[str, Any]:
        """`loss`, `objectives` and `metrics` over all ranks. A collective, and the one wait for the device.

        Objectives that no row had a target for are left out: a mean of nothing is not a loss of 0.
        """
        names = sorted(name for name in self.sums if self.counts.get(name.partition(".")[0]) != 0.0)
        local = torch.stack([self.sums[name] for name in names]).tolist() if names else []
        summed = dict(zip(names, ranks.add(local), strict=True))
        averages = {name: value / max(self.counts.get(name.partition(".")[0], 0.0), 1.0) for name, value in summed.items()}
        objectives = {name: value for name, value in averages.items() if "." not in name}
        weights = dict.fromkeys(objectives, 1.0) if self.single else self.weights
        return {
            "loss": sum(weights.get(name, 1.0) * value for name, value in objectives.items()),
            "objectives": objectives,
            "metrics": {name: value for name, value in averages.items() if "." in name},
        }

    def check(self) -> None:
        """Raise a `RunError` that names the first step whose gradient norm is not finite."""
        norms = torch.stack([norm for _, norm in self.norms]).tolist() if self.norms else []
        for (step, _), norm in zip(self.norms, norms, strict=True):
            if not math.isfinite(norm):
                raise NotFinite(step, norm)

    def speed(self) -> tuple[float, float]:
        """Seconds since the last event, and tokens per second."""
        seconds = time.perf_counter() - self.started
        return seconds, self.tokens / seconds if seconds > 0 else 0.0


def combined(losses: Mapping[str, float], odds: Mapping[str, float] | None) -> float:
    """One loss for all entries of a mixture: the sum where every step has them all, else (with `odds`) the mean by their odds."""
    if odds is None:
        return sum(losses.values())
    total = sum(odds[entry] for entry in losses)  # 0 in a phase that trains only entries without held-out examples
    return sum(loss * (odds[entry] / total if total else 1 / len(losses)) for entry, loss in losses.items())


class NotFinite(RunError):
    """The loss or its gradient is not finite."""

    def __init__(self, step: int, norm: float) -> None:
        super().__init__(
            f"step {step}: the loss or its gradient is not finite (gradient norm {norm}); this is not saved.\n"
            "  The last checkpoint is whole. Start a new run with a lower peak of training.rate, with training.clip: 1.0, "
            "or with training.precision: fp32."
        )
        self.step = step
