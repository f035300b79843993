"""A forecast of a run before its first step: updates, tokens, epochs, time and memory.

Times and bytes are measured with one micro-batch (`trial.py`) for each entry and each length of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloze.batching import MicroBatch
from cloze.display import duration, three_digits
from cloze.training.forecasting import memory
from cloze.training.forecasting.trial import RowCosts, tried, update_of
from cloze.training.precision import choose_device, choose_precision
from cloze.training.run import Run
from cloze.training.schedule.phases import SchedulePhase

#: The fraction of the available memory that may be used: the rest is for what operations need besides tensors.
SHARE = 0.8
_PLACES = (0.2, 0.4, 0.6, 0.8)  # of an epoch, of which further micro-batches are measured
_PARTS = 64  # of a phase, over which a batch that grows is averaged
_HEAP = 1.25  # bytes that the allocator of a CPU holds for each byte of tensors, measured on runs of BERT


@dataclass(frozen=True)
class Forecast:
    """What a run will take in all. None: not known for this kind of run before it starts.

    `memory` is the peak of the process in bytes with `micro_batch` rows at once: `base` bytes, plus the
    maximum over `trials` for passes over n rows. `available` is the memory that the process can have, including what it holds.
    `earliest`: the share of the run after which it ends if no later evaluation of its dev set is better than the first.
    """

    updates: float | None
    tokens: float | None
    epochs: float | None
    seconds: float | None
    parameters: int
    batch: int
    micro_batch: int
    base: int
    trials: tuple[RowCosts, ...] = ()
    available: int | None = None
    earliest: float | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the most seconds, as the speed of the micro-batches that were measured lets expect; None: not known."""
        if self.seconds is None:
            return None
        spreads = [trial.spread for trial in self.trials] or [(1.0, 1.0)]
        low, high = min(low for low, _ in spreads), max(high for _, high in spreads)
        return self.seconds * low, self.seconds * high

    @property
    def memory(self) -> int:
        """Bytes at the peak."""
        return self.peak(self.micro_batch)

    def peak(self, rows: int) -> int:
        """Peak bytes with this many rows at once."""
        return self.base + int(_HEAP * max((trial.bytes.of(rows) for trial in self.trials), default=0))

    def fits(self, rows: int) -> bool:
        """Whether this many rows at once fit."""
        return self.available is None or self.peak(rows) <= SHARE * self.available

    @property
    def largest(self) -> int:
        """The most rows at once that fit, at most those of a batch; 0 if not even one fits."""
        if self.fits(self.batch):
            return self.batch
        halves = (self.batch >> power for power in range(1, self.batch.bit_length()))
        return next((rows for rows in halves if rows and self.fits(rows)), 0)

    def __str__(self) -> str:
        parts = [f"{self.parameters:,} parameters"]
        if self.updates is not None:
            at_once = "" if self.micro_batch >= self.batch else f", {self.micro_batch:,} at once"
            updates = _rounded(self.updates)
            rows = f"{self.batch:,} {'row' if self.batch == 1 else 'rows'}"
            update_time = (
                f" (one takes {_time(self.seconds / self.updates)})" if self.updates < 1 and self.seconds is not None else ""
            )
            parts.append(f"{updates} {'update' if updates == '1' else 'updates'} of {rows}{at_once}{update_time}")
        if self.tokens is not None:
            parts.append(f"{_rounded(self.tokens)} tokens")
        if self.epochs is not None:
            parts.append(f"{three_digits(self.epochs)} epochs")
        if self.range is not None:
            low, high = map(_time, self.range)
            early = ""
            if self.earliest is not None:
                early = f" ({_time(self.range[0] * self.earliest)} if no later epoch is better than the first)"
            parts.append((low if low == high else f"{low} to {high}") + early)
        if self.trials:
            of = f" of {self.available / 1e9:.1f}" if self.available is not None else ""
            parts.append(f"{self.memory / 1e9:.1f}{of} GB of memory")
        return "forecast: " + ", ".join(parts)


#: Trials by entry and length.
Trials = dict[tuple[str, int | None], RowCosts]


def forecast(
    run: Run, *, batch: int | None = None, available: int | None = None, trials: Trials | None = None
) -> Forecast:
    """Forecast a run on one process, trained by the loop, without changing it.

    `batch` replaces the rows of an update (None: those of the run). `available` is the number of bytes that the process can
    still take (None: ask the machine). `trials` holds earlier trials of the same network and receives the new ones.
    """
    device = choose_device(run.device)
    step: Any = run.step.to(device)
    step.clock.to(device)
    precision = choose_precision(run.training.precision, device)
    free = memory.available(device) if available is None else available
    bytes_ = sum(p.numel() * p.element_size() for p in step.parameters() if p.requires_grad)
    update = update_of(run.optimizer, device, mean=run.training.average is not None)
    held = memory.resident() if device.type == "cpu" else 0
    base = held + int((update.state + 1) * bytes_)  # and a copy of the weights while they are exported
    data: Any = run.data
    run_costs = Costs(run, batch or data.batch)
    trials = {} if trials is None else trials
    used: Trials = {}
    free_bytes = free if free is not None else 1 << 62
    for phase in run_costs.phases:
        for entry in step.entries:
            length = phase.set.get("length") or run_costs.length(entry)
            if (entry, length) not in trials:
                trials[entry, length] = tried(
                    step, entry, lambda rows, entry=entry, length=length: data.sample(entry, rows, length),  # type: ignore[misc]
                    limit=data.micro_batch, precision=precision, device=device,
                    free_bytes=max(free_bytes - int(update.state * bytes_), 0),
                    elsewhere=lambda rows, entry=entry, length=length: _elsewhere(data, entry, rows, length),  # type: ignore[misc]
                    rows_in_run=_rows_in_run(run, batch or data.batch),
                )
            used[entry, length] = trials[entry, length]
    costs = [run_costs.cost(phase, used, update.seconds * bytes_) for phase in run_costs.phases]
    amount, kind = run.budget.amount - run.budget.setup_seconds, run.budget.kind
    updates = [share * amount / max(cost[kind], 1e-12) for share, cost in zip(run_costs.shares, costs, strict=True)]
    total = {name: sum(n * cost[name] for n, cost in zip(updates, costs, strict=True)) for name in costs[0]}
    measured = 0.0 if kind == "seconds" or run.selection is None else _measuring(data, used)
    total["seconds"] += total["epochs"] * measured
    if run.budget.max_epochs is not None and total["epochs"] > run.budget.max_epochs:
        total = {name: amount * run.budget.max_epochs / total["epochs"] for name, amount in total.items()}
    return Forecast(
        updates=total["steps"], tokens=total["tokens"], epochs=total["epochs"], seconds=total["seconds"],
        parameters=sum(p.numel() for p in step.parameters()),
        batch=max(int(phase.set.get("batch", run_costs.batch)) for phase in run_costs.phases),
        micro_batch=data.micro_batch, base=base, trials=tuple(used.values()),
        available=None if free is None else free + held, earliest=_earliest(run, total["epochs"]),
    )


def _rows_in_run(run: Run, batch: int) -> float:
    """How many rows a run reads if its budget counts updates or epochs; else infinitely many."""
    data: Any = run.data
    in_epoch = sum(data.rows_in_epoch(entry) for entry in run.step.entries) if run.budget.kind == "epochs" else 0
    return run.budget.amount * {"steps": batch, "epochs": in_epoch}.get(run.budget.kind, math.inf)


def _elsewhere(data: Any, entry: str, rows: int, length: int | None) -> list[MicroBatch]:
    """Micro-batches from other places of an epoch, if rows of like length share batches."""
    source = getattr(getattr(data.feeds[entry], "source", None), "source", None)
    if not getattr(source, "of_one_length", False):
        return []
    return [data.sample(entry, rows, length, at=at) for at in _PLACES]


def _measuring(data: Any, trials: Trials) -> float:
    """About how many seconds it takes to measure the dev sets once: the forward pass is a third of a training step."""
    per_row = sum(trial.seconds.per_row for trial in trials.values()) / max(len(trials), 1)
    return per_row / 3 * sum(feed.row_count(0) for feed in data.held_out_feeds.values())


def _earliest(run: Run, epochs: float) -> float | None:
    """The share of a run after which it ends at the earliest; None if nothing ends it early."""
    patience = None if run.selection is None else run.selection.patience
    return (1 + patience) / epochs if patience and run.training.evaluate_every == "epoch" and 1 + patience < epochs else None


class Costs:
    """A run by phases: which share of the budget each has, and what an update in it costs."""

    def __init__(self, run: Run, batch: int) -> None:
        data: Any = run.data
        self.run, self.batch, self.at_once = run, batch, data.micro_batch
        self.phases: Sequence[SchedulePhase] = run.phases or (SchedulePhase(),)
        ends = [phase.until for phase in self.phases]
        self.shares = [end - before for end, before in zip(ends, [0.0, *ends[:-1]], strict=True)]

    def cost(self, phase: SchedulePhase, trials: Mapping[tuple[str, int | None], RowCosts], update: float) -> dict[str, float]:
        """What one update costs in the unit of every kind of budget; `update` is the optimizer's own time in seconds."""
        run, rows = self.run, int(phase.set.get("batch", self.batch)) * self._grown(phase)
        at_once, entries = min(rows, self.at_once), list(run.step.entries)
        odds = [float(phase.set.get(f"odds.{entry}", run.odds.get(entry, 1.0))) for entry in entries]
        every = run.mixing == "all"
        weights = [1.0 if every else odd / sum(odds) for odd in odds]
        cost = {"steps": 1.0, "seconds": update, "tokens": 0.0, "flops": 0.0, "epochs": 0.0}
        for entry, weight, odd in zip(entries, weights, odds, strict=True):
            length = phase.set.get("length") or self.length(entry)
            trial = trials[entry, length]
            cost["seconds"] += weight * (math.ceil(rows / at_once) * trial.seconds.fixed + rows * trial.seconds.per_row)
            cost["tokens"] += weight * rows * trial.tokens
            cost["flops"] += weight * rows * trial.flops
            items = run.data.rows_in_epoch(entry) * self._shorter(entry, length)
            cost["epochs"] += (1.0 if every else weight) * rows / max(items, 1.0) * odd / sum(odds)
        cost["bytes"] = cost["tokens"] * (run.bytes_per_token or 0.0)
        return cost

    def _grown(self, phase: SchedulePhase) -> float:
        """The mean part of the batch that the steps of a phase have."""
        growth, index = self.run.training.growth, list(self.phases).index(phase)
        if growth is None:
            return 1.0
        begin = self.phases[index - 1].until if index else 0.0
        return sum(growth(begin + (part + 0.5) / _PARTS * self.shares[index]) for part in range(_PARTS)) / _PARTS

    def _shorter(self, entry: str, length: int | None) -> float:
        """About how many rows an epoch has at a length for each row that it has at the current one."""
        now = self.length(entry)
        return now / length if now and length else 1.0

    def length(self, entry: str) -> int | None:
        """The current length of an entry's rows."""
        feed = vars(self.run.data).get("feeds", {}).get(entry)
        return None if feed is None else int(feed.length)


def needs(parameters: int, state: float) -> int:
    """Bytes that weights, gradients and the optimizer's state take; `state` is bytes of state for each byte of weights."""
    return int(4 * parameters * (2 + state))


def _rounded(number: float) -> str:
    """A number rounded to three digits, in words.

    >>> _rounded(1234), _rounded(12_345_678), _rounded(3.14)
    ('1,230', '12.3 million', '3')
    """
    if number < 1:
        return f"{number:.2g}"
    scale = 10 ** max(math.floor(math.log10(number)) - 2, 0)
    value = round(number / scale) * scale
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:,}"


def _time(seconds: float) -> str:
    days = seconds / 86_400
    if days > 730:
        return f"{days / 365.25:,.0f} years"
    return f"{days:,.0f} days" if days > 3 else duration(seconds)
