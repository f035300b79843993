"""Sweeps: many trials of one recipe, of which the worst are given up at rungs, so that the budget goes to the best.

Successive halving (Jamieson and Talwalkar, 2016, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", §3; Li
et al., 2018, "Hyperband", §3): all trials run to the first rung, a share of its budget; a share of them, those with the lowest
held-out losses, go on to the next. A trial is one run, which pauses at a rung and resumes exactly. So a rung costs nothing but
its evaluation, and the loss of the winner is the one of a run that never paused.

Differs: the rungs are shares of the budget of one run, and the rate follows the whole budget. So at a rung no trial has decayed.

With tasks, the trials that reach the end are fine-tuned on them and ranked by their dev sets. The rungs go by held-out losses.

The cells are those of a comparison: the run of a trial is the run of the same recipe and values in `cloze compare`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from cloze.checkpoint.checks.check import check_recipe
from cloze.comparison.cell import Cell
from cloze.comparison.compare import begin, fill
from cloze.comparison.design import FULL, CandidateSystem, Design, TaskFiles, Transfer, as_varied, checked, known_recipe
from cloze.comparison.grid import Grid
from cloze.comparison.search import Search
from cloze.comparison.space import Axis, Values
from cloze.comparison.spending import require_pause
from cloze.errors import BudgetError, RecipeError, Say, spelled_by
from cloze.jobs import Workers
from cloze.recipe.load import load_recipe
from cloze.recipe.recipe import Recipe


@dataclass(frozen=True)
class Sweep:
    """A sweep of one recipe. `design` has all but the trials: the text, the one budget, seeds, size, tokenizer and device.

    `values` are set in all trials. `rungs` are ascending shares of the budget, the last one 1; at each but the last, the share
    `keep` of the trials goes on. The trials that reach the end run with `design.seeds` seeds; `design.tasks`, if any, decide
    which of them is best.
    """

    recipe: str
    design: Design
    space: Sequence[Axis]
    search: Search
    rungs: Sequence[float] = (1.0,)
    keep: Fraction = Fraction(1, 3)
    values: Sequence[str] = ()


@dataclass(frozen=True)
class Trial:
    """A point of the space; `number` counts from 1."""

    number: int
    values: Values
    candidate: CandidateSystem


def rungs_of(option: str) -> tuple[float, ...]:
    """Shares of the budget from `0.1,0.3,1`. Raises `BudgetError` unless they ascend within 0 and 1; the last one is 1."""
    try:
        shares = tuple(float(Fraction(text.strip())) for text in option.split(","))
    except (ValueError, ZeroDivisionError):
        shares = ()
    if not shares or sorted(set(shares)) != list(shares) or shares[0] <= 0 or shares[-1] != 1:
        raise BudgetError(f"--rungs {option}: expected ascending shares of the budget, the last one 1, such as 0.1,0.3,1.")
    return shares


def keep_of(option: str) -> Fraction:
    """A share from `1/3` or `0.5`."""
    try:
        share = Fraction(option.strip())
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share <= 1:
        raise BudgetError(f"--keep {option}: expected the share of the trials that goes on at a rung, such as 1/3 or 0.5.")
    return share


def checked_sweep(sweep: Sweep) -> Sweep:
    """The same, if it can be run. Whatever cannot is refused before anything is trained or written."""
    name, design = known_recipe(sweep.recipe), sweep.design
    if not Path(name).is_file() and Path(sweep.recipe).is_dir():
        raise RecipeError(f"{sweep.recipe}: a sweep takes a recipe, by name or file, not a folder.")
    if len(design.budgets) != 1:
        raise BudgetError("--budget is missing: what each trial may spend in full, such as 20Mtokens or 1e16flops.")
    if design.seeds < 1:
        raise BudgetError(f"--seeds {design.seeds}: expected 1 or more.")
    ready = checked(replace(design, candidates=[CandidateSystem(sweep.recipe, name, tuple(sweep.values))]))
    recipe = load_recipe(name, size=design.size, overrides=list(sweep.values), with_files=design.with_files)
    if recipe.stages:
        raise RecipeError(f"{sweep.recipe}: has stages, each with a budget of its own. A sweep takes a recipe without stages.")
    if recipe.training.held_out == 0:
        raise RecipeError(f"{sweep.recipe}: training.held_out is 0, but a sweep ranks by held-out loss: hold some text out.")
    if any(axis.path == "training.held_out" for axis in sweep.space):
        raise RecipeError("--vary training.held_out: trials would be measured on different text. Give one value, with --set.")
    return replace(sweep, recipe=name, design=replace(design, metrics=ready.metrics, task_recipes=ready.task_recipes))


@dataclass
class Rungs:
    """The cells of a checked sweep in the folder `out`; `failed` are those that failed since it was made."""

    sweep: Sweep
    out: Path
    trials: list[Trial] = field(default_factory=list)

    @cached_property
    def grid(self) -> Grid:
        """The grid of a comparison whose candidates are the trials."""
        return Grid(self.sweep.design, self.out)

    @property
    def failed(self) -> dict[str, str]:
        """Why cells failed, by key."""
        return self.grid.failed

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """The result of a cell, None where it is not finished."""
        return self.grid.result(cell)

    def cells(self) -> Iterator[Cell]:
        """Stores, then the runs rung by rung, then further seeds of the trials that reached the end."""
        self._name()
        for trial in self.trials:
            store = self.grid.store(trial.candidate)
            if store is not None:
                yield store
        for number in range(len(self.sweep.rungs)):
            for trial in self.at(number) or []:
                if self._has_store(trial):
                    yield self.cell(trial, number)
        for trial in self.at(len(self.sweep.rungs) - 1) or []:
            if self.loss(trial, len(self.sweep.rungs) - 1) is not None:
                yield from self.seeds(trial)[1:]
                for task in self.sweep.design.tasks:
                    yield from self.tuned(trial, task)

    def ready(self) -> list[Cell]:
        """The cells to work on now, each once."""
        cells = {cell.key: cell for cell in self.cells()}
        return [cell for key, cell in cells.items() if key not in self.failed and self.result(cell) is None]

    def counts(self) -> dict[str, int]:
        """How many cells of each stage there will be, if none fails."""
        self._name()
        stores = {store.key for trial in self.trials if (store := self.grid.store(trial.candidate)) is not None}
        counts, left, ends = {"corpus": len(stores)}, self.sweep.search.count, 0
        for rung in self.sweep.rungs:
            counts["pretrain" if rung == 1 else f"pretrain until {rung:g}"] = left * (self.sweep.design.seeds if rung == 1 else 1)
            ends, left = left, kept(left, self.sweep.keep)
        if self.sweep.design.tasks:
            counts["finetune"] = ends * self.sweep.design.seeds * len(self.sweep.design.tasks)
        return counts

    def cell(self, trial: Trial, number: int) -> Cell:
        """The run of a trial up to a rung; its store is finished."""
        cell = self.grid.run(trial.candidate, self.sweep.design.budgets[0], 1)
        return replace(cell, until=self.sweep.rungs[number])

    def require_pauses(self) -> None:
        """Refuse runs, of another sweep or of a comparison, that have passed a rung without being measured there."""
        for trial in self.trials if self.out.is_dir() else ():
            for number, rung in enumerate(self.sweep.rungs[:-1]):
                if self._has_store(trial) and self.result(cell := self.cell(trial, number)) is None:
                    require_pause(cell.folder(self.out) / "run", rung)

    def seeds(self, trial: Trial) -> list[Cell]:
        """The whole runs of a trial, one per seed; the first is the one that the rungs have seen."""
        budget = self.sweep.design.budgets[0]
        return [self.grid.run(trial.candidate, budget, seed) for seed in range(1, self.sweep.design.seeds + 1)]

    def tuned(self, trial: Trial, task: TaskFiles) -> list[Cell]:
        """The runs of fine-tuning of a trial, one per seed whose pre-training is finished."""
        return self.grid.tuned(trial.candidate, self.sweep.design.budgets[0], Transfer(FULL), task)

    def scores(self, trial: Trial, task: TaskFiles) -> dict[int, float]:
        """The metric of a task on its dev set by the seeds that are finished."""
        return {
            cell.identity["seed"]: float(result["dev"]) for cell in self.tuned(trial, task)
            if (result := self.result(cell)) is not None
        }  # fmt: skip

    def loss(self, trial: Trial, number: int) -> float | None:
        """The held-out loss of a trial at a rung; None if it is not there, infinite if it is not a number."""
        result = self.result(self.cell(trial, number)) if self._has_store(trial) else None
        if result is None or result["held_out"] is None:
            return None
        loss = float(result["held_out"])
        return math.inf if math.isnan(loss) else loss

    def at(self, number: int) -> list[Trial] | None:
        """The trials that run to a rung; None while an earlier rung decides."""
        if number == 0:
            return self.trials
        before = self.at(number - 1)
        is_complete = len(self.trials) == self.sweep.search.count
        if before is None or not is_complete or not all(self._judged(trial, number - 1) for trial in before):
            return None
        losses = {trial.number: loss for trial in before if (loss := self.loss(trial, number - 1)) is not None}
        best = sorted(
            (trial for trial in before if trial.number in losses), key=lambda trial: (losses[trial.number], trial.number)
        )
        return best[: kept(len(before), self.sweep.keep)]

    def _judged(self, trial: Trial, number: int) -> bool:
        """Whether a trial has been measured at a rung, or has failed before."""
        store = self.grid.store(trial.candidate)
        if store is not None and store.key in self.failed:
            return True
        return self._has_store(trial) and (
            self.cell(trial, number).key in self.failed or self.result(self.cell(trial, number)) is not None
        )

    def _has_store(self, trial: Trial) -> bool:
        return self.grid.store_folder(trial.candidate) is not None

    def _name(self) -> None:
        """Name the next trials, once all earlier ones have been measured at the first rung or have failed."""
        while all(self._judged(trial, 0) for trial in self.trials):
            more = self.sweep.search.more({trial.values: self.loss(trial, 0) for trial in self.trials})
            if not more:
                return
            self._add(more)

    def _add(self, points: Sequence[Values]) -> None:
        sweep, recipes = self.sweep, dict(self.grid.design.recipes)
        if not self.trials:
            self._require_different((*sweep.values, *points[0]))
        for values in points:
            name = " ".join(values)
            candidate = CandidateSystem(name, sweep.recipe, (*sweep.values, *values))
            recipes[name] = self._load(candidate.values)
            self.trials.append(Trial(len(self.trials) + 1, values, candidate))
        candidates = [trial.candidate for trial in self.trials]
        self.grid.design = replace(self.grid.design, candidates=candidates, recipes=recipes)

    def _require_different(self, values: Sequence[str]) -> None:
        """Refuse values of which the later ones replace earlier ones."""
        if self._load(values).canonical() != self._load(values[::-1]).canonical():
            paths = ", ".join(value.partition("=")[0] for value in values)
            raise RecipeError(f"{paths}: two of these are the same value of the recipe. Give it once, with --vary or with --set.")

    def _load(self, values: Sequence[str]) -> Recipe:
        design = self.sweep.design
        with spelled_by(as_varied([value for value in values if value not in self.sweep.values])):
            recipe = load_recipe(self.sweep.recipe, size=design.size, overrides=list(values), with_files=design.with_files)
        check_recipe(recipe)
        return recipe


def kept(count: int, share: Fraction) -> int:
    """How many of so many trials go on: the share of them, rounded up."""
    return max(1, math.ceil(count * share))


def run(sweep: Sweep, out: Path, workers: Workers, *, say: Say = lambda line: None) -> Rungs:
    """Run what is missing of a sweep, and return its cells.

    A cell that is finished is never run again, and a run that was stopped resumes. Raises a `UserError` for what cannot be swept
    before anything is written, and `Interrupted` after Ctrl-C.
    """
    rungs = begun(sweep, out, workers, say=say)
    fill(rungs, workers, say=say)
    return rungs


def begun(sweep: Sweep, out: Path, workers: Workers, *, say: Say = lambda line: None) -> Rungs:
    """The cells of a sweep, checked, before any of them is run."""
    rungs = Rungs(checked_sweep(sweep), out)
    begin(sweep.design, out, workers, say=say)
    rungs.counts()  # loads the recipes of the first trials, which may be refused
    rungs.require_pauses()
    return rungs


def changed_tasks(space: Sequence[Axis]) -> list[str]:
    """The varied paths that change what is predicted, so that losses of different values are losses of different exercises."""
    free = ("training", "network", "networks", "batch")
    return [axis.path for axis in space if axis.path.partition(".")[0].partition("[")[0] not in free]
