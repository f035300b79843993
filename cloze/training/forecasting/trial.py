"""Measure the time and memory of one micro-batch before a run starts, without changing the run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from cloze.batching import MicroBatch
from cloze.training.carry import Carry
from cloze.training.forecasting.memory import peaks
from cloze.training.optimizers.optimizers import OptimizerSpec
from cloze.training.precision import casting
from cloze.training.step import StepModule

_SECONDS = 0.12  # the least that the larger trial takes, unless memory or `limit` ends it before
_ONCE = 0.5      # a row that takes longer predicts the time of many well enough
_BACKWARD = 1.1  # bytes that a backward pass holds for each byte that the forward pass saved
_PROBE = (512, 512)
_BRIEF = 120.0  # seconds: a run that takes less is not worth more than three passes
_UNLIKE = 1.25  # micro-batches with so many times the tokens of others are timed, too


class LinearCost(NamedTuple):
    """What a micro-batch costs: a fixed part, and a part for each row."""

    fixed: float
    per_row: float

    def of(self, rows: float) -> float:
        """The cost of this many rows at once.

        >>> LinearCost(50.0, 10.0).of(8)
        130.0
        """
        return self.fixed + self.per_row * rows


@dataclass(frozen=True)
class RowCosts:
    """What rows of one kind cost: real tokens and FLOPs per row; seconds and bytes (gradients included) of a micro-batch.

    `spread`: the least and the most that a token took in the micro-batches that were measured, as multiples of the mean.
    """

    seconds: LinearCost
    bytes: LinearCost
    tokens: float
    flops: float
    spread: tuple[float, float] = (1.0, 1.0)


def tried(
    step: StepModule, entry: str, rows: Callable[[int], MicroBatch], *, limit: int, precision: Any, device: torch.device,
    free_bytes: int, elsewhere: Callable[[int], Sequence[MicroBatch]] = lambda rows: (), rows_in_run: float = math.inf,
) -> RowCosts:
    """Measure one row, then enough rows to see what each adds: at least two, at most `limit` or a quarter of `free_bytes`.

    A recurrent network takes nearly as long for one row as for eight, so neither time alone predicts that of a micro-batch.
    `rows(n)` are n rows of the entry as a micro-batch; `elsewhere(n)` are n rows each from other places of an epoch, which are
    measured, too, where they have other lengths: batches of labelled text have rows of like length. A run of so few rows
    (`rows_in_run`) that it is brief gets three passes, and its other rows are taken to cost as much per token. Parameters,
    gradients, random state, modes and the clock are restored.
    """
    single = rows(1)
    forward, first = peaks(lambda mark: run(step, entry, single, precision, device, mark), device)
    quick = _timed(step, entry, single, precision, device)  # the first pass may have compiled or loaded something once
    most = max(2, min(limit, int(free_bytes / 4 / max(first, 1)), 64))
    many = max(2, min(most, int(_SECONDS / quick)))
    batch = rows(many)
    began = time.perf_counter()
    held, peak = peaks(lambda mark: run(step, entry, batch, precision, device, mark), device)
    seconds, brief = LinearCost(0.0, quick), quick * rows_in_run < _BRIEF
    if brief:
        seconds = _through(quick, many, time.perf_counter() - began)
    elif quick <= _ONCE:
        seconds = _line(quick, many, lambda n: _timed(step, entry, rows(n), precision, device), most)
    # What a forward pass saves grows with the rows; gradients of the parameters do not, and with few rows they dominate.
    slope = int(_BACKWARD * max(held - forward, 0) / (many - 1))
    fixed = max(first - slope, 0)
    slope = max(slope, (peak - fixed) // many)
    trial = RowCosts(seconds, LinearCost(fixed, slope), batch.tokens / many, step.flops(entry, batch.batch) / many)
    few = many if quick <= _ONCE else 1  # of slow rows, one tells enough
    micro_batches = [micro for micro in elsewhere(few) if micro.tokens]
    sizes = [single.tokens if few == 1 else batch.tokens, *(micro.tokens for micro in micro_batches)]
    if not min(sizes) or max(sizes) < _UNLIKE * min(sizes):  # passes over cells read no tokens
        return trial
    times = [seconds.of(few)]
    for micro in micro_batches:
        if brief:
            times.append(times[0] * micro.tokens / sizes[0])
            continue
        if device.type == "cuda":
            run(step, entry, micro, precision, device)  # rows of a new length may compile or allocate something once
        times.append(_timed(step, entry, micro, precision, device))
    flops = [step.flops(entry, micro.batch) / few for micro in (single if few == 1 else batch, *micro_batches)]
    return _over(trial, times, sizes, flops, few)


def _over(first: RowCosts, times: Sequence[float], sizes: Sequence[int], flops: Sequence[float], rows: int) -> RowCosts:
    """What rows cost on average over micro-batches of so many rows, of which the `first` was measured in full: its times and
    sizes in tokens come first. The largest decides how much memory is needed."""
    slower, larger = sum(times) / len(times) / times[0], max(sizes) / sizes[0]
    ratios = [time / size for time, size in zip(times, sizes, strict=True)]
    mean = sum(times) / sum(sizes)
    return RowCosts(
        LinearCost(first.seconds.fixed * slower, first.seconds.per_row * slower), first.bytes._replace(
            per_row=first.bytes.per_row * larger), sum(sizes) / len(sizes) / rows, sum(flops) / len(flops),
        (min(ratios) / mean, max(ratios) / mean),
    )


def _line(row_seconds: float, many: int, timed: Callable[[int], float], most: int) -> LinearCost:
    """The time of a micro-batch, of which one row takes `row_seconds` and n rows `timed(n)`, measured from `many` rows on."""
    took = timed(many)
    while took < _SECONDS and many < most:
        many = min(2 * many, most)
        took = min(timed(many), timed(many))  # the first pass over so many rows may have allocated or compiled something once
    return _through(row_seconds, many, took)


def _through(row_seconds: float, many: int, took: float) -> LinearCost:
    """The line through the times of one row and of `many`."""
    # At least half of the time depends on the rows: two measurements are too noisy to tell more.
    slope = min(max((took - row_seconds) / (many - 1), took / many / 2), took / many)
    return LinearCost(took - slope * many, slope)


def run(
    step: StepModule, entry: str, micro: MicroBatch, precision: Any, device: torch.device,
    halfway: Callable[[], None] = lambda: None,
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
class UpdateCosts:
    """What an update of the parameters costs: seconds and bytes of the optimizer's state for each byte of parameters."""

    seconds: float
    state: float


def update_of(optimizer: OptimizerSpec, device: torch.device, *, mean: bool = False) -> UpdateCosts:
    """Measure the optimizer on embeddings and on a matrix of a layer. `mean`: the run also keeps a mean of the weights."""
    matrices = [nn.Parameter(torch.ones(_PROBE, device=device)) for _ in range(2)]
    size = sum(matrix.numel() * matrix.element_size() for matrix in matrices)
    named = zip(("embeddings.tokens.weight", "layers.0.outer.weight"), matrices, strict=True)
    probe = optimizer.build_by_part(named, lambda parameter: "embeddings" if parameter is matrices[0] else "layers")
    seconds = float("inf")
    for _ in range(2):
        for matrix in matrices:
            matrix.grad = torch.ones_like(matrix)
        started = time.perf_counter()
        probe.step()
        seconds = min(seconds, time.perf_counter() - started)
    states = [value for matrix in matrices for value in probe.state[matrix].values() if isinstance(value, torch.Tensor)]
    return UpdateCosts(seconds / size, sum(value.numel() * value.element_size() for value in states) / size + mean)


def _timed(step: StepModule, entry: str, micro: MicroBatch, precision: Any, device: torch.device) -> float:
    started = time.perf_counter()
    run(step, entry, micro, precision, device)
    return time.perf_counter() - started
