"""Measure the time and memory of one micro-batch before a run starts, without changing the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cloze.batching import MicroBatch
from cloze.training.carry import Carry
from cloze.training.memory import peaks
from cloze.training.optimizers import OptimizerSpec
from cloze.training.precision import casting
from cloze.training.step import Step

_SECONDS = 0.12  # seconds for the larger trial: enough to outweigh the fixed cost of a tiny network's operations
_TINY = 0.03     # a first row this fast needs no second measurement
_ONCE = 0.5      # a row that takes longer predicts the time of many well enough
_BACKWARD = 1.1  # bytes that a backward pass holds for each byte that the forward pass saved
_PROBE = (512, 512)


@dataclass(frozen=True)
class Trial:
    """What rows of one kind cost: seconds, real tokens and FLOPs per row; bytes of a micro-batch, as a line over its rows."""

    seconds: float
    tokens: float
    flops: float
    fixed: int
    per_row: int

    def bytes(self, rows: int) -> int:
        """The bytes of forward and backward passes over this many rows, gradients included."""
        return self.fixed + self.per_row * rows


def tried(
    step: Step, entry: str, rows: Callable[[int], MicroBatch], *, limit: int, precision: Any, device: torch.device, room: int
) -> Trial:
    """Measure one row, then as many as fit a moment and a quarter of `room` bytes, at least two and at most `limit`.

    `rows(n)` are n rows of the entry as a micro-batch. Parameters, gradients, random state, modes and the clock are
    restored.
    """
    one = rows(1)
    started = time.perf_counter()
    forward, first = peaks(lambda mark: run(step, entry, one, precision, device, mark), device)
    quick = time.perf_counter() - started
    if quick > _TINY:  # the first pass may have compiled or loaded something once
        quick = _timed(step, entry, one, precision, device)
    many = max(2, min(limit, int(room / 4 / max(first, 1)), 64, int(_SECONDS / quick)))
    batch = rows(many)
    held, most = peaks(lambda mark: run(step, entry, batch, precision, device, mark), device)
    seconds = quick if quick > _ONCE else _timed(step, entry, batch, precision, device) / many
    # What a forward pass saves grows with the rows; gradients of the parameters do not, and with few rows they dominate.
    slope = int(_BACKWARD * max(held - forward, 0) / (many - 1))
    fixed = max(first - slope, 0)
    slope = max(slope, (most - fixed) // many)
    return Trial(seconds, batch.tokens / many, step.flops(entry, batch.batch) / many, fixed, slope)


def run(
    step: Step, entry: str, micro: MicroBatch, precision: Any, device: torch.device, halfway: Callable[[], None] = lambda: None
) -> None:
    """One forward and backward pass without lasting effects; `halfway` is called between the two."""
    training, clock = step.training, step.clock
    (seed, number, first_row), share = clock.numbers, float(clock.share)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            step.train()
            clock.set(step=0, first_row=0, share=0.0)
            batch = micro.batch.to(device)
            with casting(precision, device):
                losses = step(entry, batch, Carry() if step.carries else None)
            halfway()
            weights = step.weights(entry, 0.0)
            torch.stack([loss.total * weights[name] for name, loss in losses.items()]).sum().backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
    finally:
        step.zero_grad(set_to_none=True)
        step.train(training)
        clock.set(seed=seed, step=number, first_row=first_row, share=share)


@dataclass(frozen=True)
class Update:
    """What an update of the parameters costs: seconds and bytes of the optimiser's state for each byte of parameters."""

    seconds: float
    state: float


def update_of(optimizer: OptimizerSpec, device: torch.device, *, mean: bool = False) -> Update:
    """Measure the optimiser on embeddings and on a matrix of a layer. `mean`: the run also keeps a mean of the weights."""
    matrices = [nn.Parameter(torch.ones(_PROBE, device=device)) for _ in range(2)]
    size = sum(matrix.numel() * matrix.element_size() for matrix in matrices)
    made = optimizer.build(zip(("embeddings.tokens.weight", "layers.0.outer.weight"), matrices, strict=True))
    seconds = float("inf")
    for _ in range(2):
        for matrix in matrices:
            matrix.grad = torch.ones_like(matrix)
        started = time.perf_counter()
        made.step()
        seconds = min(seconds, time.perf_counter() - started)
    kept = [value for matrix in matrices for value in made.state[matrix].values() if isinstance(value, torch.Tensor)]
    return Update(seconds / size, sum(value.numel() * value.element_size() for value in kept) / size + mean)


def _timed(step: Step, entry: str, micro: MicroBatch, precision: Any, device: torch.device) -> float:
    started = time.perf_counter()
    run(step, entry, micro, precision, device)
    return time.perf_counter() - started
