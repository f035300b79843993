"""What a comparison has found, as plain values: scores, significant differences, costs, failures, and a sentence."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.comparison.cell import LOG, failure_of
from cloze.comparison.costs import Cost, Reached, reached
from cloze.comparison.design import FULL, CandidateSystem, Design, TaskFiles, Transfer
from cloze.comparison.grid import Grid, Result
from cloze.comparison.statistics import LEVEL, Difference, difference, holm, quantile, summary
from cloze.training.schedule.budget import Budget

OVERALL = "mean"  # over the tasks


class Scores(NamedTuple):
    """One system on one task: scores by seed, how many runs gave a constant answer, and a score per example (N,), the mean over
    the runs."""

    by_seed: Mapping[int, float]
    constant: int = 0
    examples: NDArray[np.float64] | None = None

    @property
    def runs(self) -> tuple[float, ...]:
        """The scores in the order of the seeds."""
        return tuple(self.by_seed.values())


@dataclass(frozen=True)
class System:
    """A candidate with a way of transferring, at one budget (None for a checkpoint). `scores` by task; `cost` is the mean over
    seeds, as `held_out` is that of the held-out losses; `trained` is the number of parameters that fine-tuning moved."""

    name: str
    budget: str | None
    scores: Mapping[str, Scores]
    cost: Cost | None = None
    held_out: float | None = None
    curve: Sequence[Sequence[float]] = ()
    trained: int | None = None
    rates: Mapping[str, float] = field(default_factory=dict)

    def overall(self, tasks: Sequence[str]) -> tuple[float, ...]:
        """The mean over tasks of every seed that has been measured on all of them; nothing where a task is missing."""
        by_task = [self.scores[name].by_seed for name in tasks if name in self.scores]
        if len(by_task) < len(tasks) or not by_task:
            return ()
        return tuple(
            float(np.mean([scores[seed] for scores in by_task]))
            for seed in by_task[0] if all(seed in scores for scores in by_task)
        )  # fmt: skip


class SystemPair(NamedTuple):
    """Two systems on a task, or on the mean of all: the difference of the first and the second, corrected for all pairs."""

    one: str
    two: str
    task: str
    difference: Difference
    adjusted: float

    @property
    def apart(self) -> bool:
        """Whether they differ significantly."""
        return self.adjusted <= LEVEL


class Failure(NamedTuple):
    """A cell that failed: its name, the reason, its log, and the command that repeats this cell alone."""

    cell: str
    kind: str
    reason: str
    log: str
    again: str


@dataclass(frozen=True)
class ComparisonResult:
    """The finding. `systems` are those of the largest budget, the best first; `smaller` are those of smaller budgets. `ngrams`
    are the results of linear models on n-grams by task: their score is `test`."""

    design: Design
    systems: Sequence[System]
    smaller: Sequence[System]
    pairs: Sequence[SystemPair]
    failures: Sequence[Failure]
    unfinished: int
    baselines: Mapping[str, float]
    examples: Mapping[str, int]
    reach: Reached | None = None
    ngrams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def ranked(self) -> list[str]:
        """The tasks that the mean is of: those whose metric is better the higher it is."""
        return ranked_tasks(self.design)

    @property
    def seeds(self) -> int:
        """The seeds with which every system has been measured on all ranked tasks; systems that lack a task do not count."""
        counts = [len(overall) for system in self.systems if (overall := system.overall(self.ranked))]
        return min(counts, default=0)

    def pair(self, first: str, second: str, task: str = OVERALL) -> SystemPair | None:
        """The comparison of two systems, in this order."""
        for pair in self.pairs:
            if pair.task == task and {pair.one, pair.two} == {first, second}:
                if pair.one == first:
                    return pair
                d = pair.difference
                return SystemPair(first, second, task, d._replace(value=-d.value, low=-d.high, high=-d.low), pair.adjusted)
        return None

    @property
    def least(self) -> float | None:
        """About the least difference that this comparison would detect: the median over pairs, with the correction."""
        count = len([pair for pair in self.pairs if pair.task == OVERALL])
        differences = [pair.difference.least for pair in self.pairs if pair.task == OVERALL and pair.difference.least is not None]
        if not differences:
            return None
        freedom = 2.0 * (self.design.seeds - 1)
        stricter = quantile(1 - LEVEL / (2 * _share(self.design) * count), freedom) / quantile(1 - LEVEL / 2, freedom)
        return float(np.median(differences)) * stricter

    def data(self) -> dict[str, Any]:
        """Plain values: the figures of `--json`."""
        return {
            "level": LEVEL, "seeds": self.design.seeds,
            "budget": self.systems[0].budget if self.systems else None,
            "tasks": [
                {"name": task.name, "type": task.type, "metric": metric.name, "more": metric.more,
                 "constant_answer": self.baselines.get(task.name),
                 "ngrams": self.ngrams.get(task.name), "examples": self.examples.get(task.name)}
                for task in self.design.tasks for metric in [self.design.metrics[task.name]]
            ],
            "systems": [_system(system, self.ranked) for system in (*self.systems, *self.smaller)],
            "pairs": [
                {"one": pair.one, "two": pair.two, "task": pair.task, **_finite(pair.difference._asdict()),
                 "p": pair.difference.p, "adjusted": pair.adjusted, "apart": pair.apart} for pair in self.pairs
            ],
            "reach": None if self.reach is None else self.reach.data(),
            "failed": [failure._asdict() for failure in self.failures], "unfinished": self.unfinished,
        }  # fmt: skip


def answer_of(grid: Grid, *, reach: float | None = None) -> ComparisonResult:
    """What the finished cells of a grid say."""
    design = grid.design
    systems = [
        _measured(grid, candidate, budget, transfer)
        for candidate, budget in grid.starts() for transfer in design.transfers
    ]  # fmt: skip
    largest = None if not design.budgets else design.budgets[-1].typed
    tasks = ranked_tasks(design)
    contenders = [system for system in systems if system.budget in (None, largest)]
    ranked = sorted(contenders, key=lambda system: -_worth(system, tasks))
    smaller = [system for system in systems if system not in contenders]
    tests = {task.name: result for task in design.tasks if (result := _tested(grid, task)) is not None}
    return ComparisonResult(
        design, ranked, smaller, pairs_of(ranked, design), _failures(grid), len(grid.ready()),
        {name: test["baseline"] for name, test in tests.items() if test["baseline"] is not None},
        {name: test["examples"] for name, test in tests.items()}, reached(systems, tasks, quality=reach),
        {task.name: result for task in design.tasks if (result := grid.result(grid.ngrams(task))) is not None},
    )


def ranked_tasks(design: Design) -> list[str]:
    """The tasks whose metric is better the higher it is; a loss has another scale and no part in the mean."""
    return [task.name for task in design.tasks if design.metrics[task.name].more]


def pairs_of(systems: Sequence[System], design: Design, *, draws: int = 10_000) -> list[SystemPair]:
    """All pairs on the mean over tasks and on each task, corrected: the mean and the tasks have half of the level each."""
    tasks, pairs = ranked_tasks(design), []
    by_task = [task.name for task in design.tasks] if len(design.tasks) > 1 or not tasks else []
    for scope in ([OVERALL] if tasks else [], by_task):
        compared = [
            (first, second, name, result) for name in scope for first, second in combinations(systems, 2)
            if (result := _compared(first, second, tasks if name == OVERALL else [name], design, draws)) is not None
        ]  # fmt: skip
        adjusted = [min(1.0, value * _share(design)) for value in holm([result.p for *_, result in compared])]
        pairs += [
            SystemPair(first.name, second.name, name, result, value)
            for (first, second, name, result), value in zip(compared, adjusted, strict=True)
        ]  # fmt: skip
    return pairs


def _share(design: Design) -> int:
    """Into how many parts the level is divided."""
    return 2 if len(design.tasks) > 1 and ranked_tasks(design) else 1


def _compared(first: System, second: System, tasks: Sequence[str], design: Design, draws: int) -> Difference | None:
    ours, rival_scores = first.overall(tasks), second.overall(tasks)
    if not ours or not rival_scores:
        return None
    sign = 1.0 if design.metrics[tasks[0]].more else -1.0
    blocks: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for name in tasks:
        a, b = first.scores[name].examples, second.scores[name].examples
        if a is None or b is None or len(a) != len(b):
            blocks = []
            break
        blocks.append((sign * a, sign * b))
    return difference([sign * value for value in ours], [sign * value for value in rival_scores], blocks, draws=draws)


def _measured(grid: Grid, candidate: CandidateSystem, budget: Budget | None, transfer: Transfer) -> System:
    design = grid.design
    scores, rates, trained = {}, {}, None
    for task in design.tasks:
        cells = grid.final(candidate, budget, transfer, task)
        by_seed = {cell.identity["seed"]: result for cell in cells if (result := grid.result(cell)) is not None}
        results = list(by_seed.values())
        if not results:
            continue
        by_example = [result["scores"] for result in results]
        is_complete = all(values is not None for values in by_example) and len({len(values) for values in by_example}) == 1
        scores[task.name] = Scores(
            {seed: result["test"] for seed, result in by_seed.items()}, sum(result["constant"] for result in results),
            np.mean(np.array(by_example, np.float64), axis=0) if is_complete else None,
        )
        rates[task.name], trained = cells[0].identity["rate"], results[0]["trained"]
    name = candidate.name + ("" if transfer.name == FULL and len(design.transfers) == 1 else f" {transfer.name}")
    if budget is None:
        return System(name, None, scores, trained=trained, rates=rates)
    starts = grid.starting(candidate, budget)
    runs = [result for cell in starts if (result := grid.result(cell)) is not None]
    losses = [run["held_out"] for run in runs if run["held_out"] is not None]
    cost = Cost(*(float(np.mean([run[key] for run in runs])) for key in Cost._fields)) if runs else None
    return System(
        name, budget.typed, scores, cost, float(np.mean(losses)) if losses else None, runs[0]["curve"] if runs else (), trained,
        {**({"pre-training": starts[0].identity["rate"]} if starts else {}), **rates},
    )


def _tested(grid: Grid, task: TaskFiles) -> Result | None:
    """The result of one run on a task; the size of the test set and the constant answer are the same in all of them."""
    cells = (
        cell for candidate, budget in grid.starts() for transfer in grid.design.transfers
        for cell in grid.final(candidate, budget, transfer, task)
    )  # fmt: skip
    return next((result for cell in cells if (result := grid.result(cell)) is not None), None)


def _failures(grid: Grid) -> list[Failure]:
    cells = {cell.key: cell for cell in grid.cells()}
    failures = []
    for key, cell in cells.items():
        folder = cell.folder(grid.out)
        reason = grid.failed.get(key) or (failure_of(folder) if grid.result(cell) is None else None)
        if reason is not None:
            again = shlex.join(["python", "-m", "cloze.comparison.work", str(folder)])
            failures.append(Failure(cell.label, cell.kind, reason, str(folder / LOG), again))
    return failures


def _worth(system: System, tasks: Sequence[str]) -> float:
    overall = system.overall(tasks)
    return float(np.mean(overall)) if overall else -math.inf


def _system(system: System, tasks: Sequence[str]) -> dict[str, Any]:
    def shown(runs: Sequence[float], constant: int = 0) -> dict[str, Any]:
        return {**_finite(summary(runs)._asdict()), "runs": list(runs), "constant": constant}

    overall = system.overall(tasks)
    return {
        "name": system.name, "budget": system.budget, OVERALL: shown(overall) if overall else None,
        "tasks": {name: shown(scores.runs, scores.constant) for name, scores in system.scores.items()},
        "cost": None if system.cost is None else system.cost._asdict(), "held_out": system.held_out, "curve": system.curve,
        "trained_parameters": system.trained, "rates": dict(system.rates),
    }  # fmt: skip


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that JSON knows: null for nan and infinity."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()}

