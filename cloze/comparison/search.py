"""Which points of a space a sweep tries: all of a grid, random ones, or those that Optuna proposes.

A search has no state. What it proposes follows from the space, its seed and the losses of earlier trials, so a sweep that was
killed comes to the same trials again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from cloze.comparison.space import MOST, Axis, CategoricalValue, Values, grid_of, named, size_of
from cloze.errors import MissingExtra, RecipeError, counted, propose
from cloze.rng import fold

KINDS = ("grid", "random", "optuna")
_GENERATIONS = 4  # into how many parts the trials of a model-based search are divided


class Search(Protocol):
    """Proposes trials."""

    @property
    def count(self) -> int:
        """How many trials there will be."""

    def more(self, losses: Mapping[Values, float | None]) -> list[Values]:
        """The next trials, none at the end; `losses` are those of all earlier ones, in order (None: failed)."""


def search_of(kind: str, space: Sequence[Axis], trials: int | None, seed: int = 0) -> Search:
    """The search that `--search` names.

    Raises `RecipeError` for another name, without a number of trials, or for more trials than the space has points;
    `MissingExtra` if Optuna is not installed.
    """
    if kind not in KINDS:
        raise RecipeError(f"--search {kind}: no such search. {propose(kind, KINDS)}")
    if trials is not None and not 1 <= trials <= MOST:
        raise RecipeError(f"--trials {trials}: expected a number from 1 to {MOST:,}.")
    if kind == "grid":
        return AllTrials(grid_of(space, trials))
    if trials is None:
        raise RecipeError(
            f"--trials is missing: how many points a {kind} search tries, such as --trials 16.\n"
            "  --search grid tries every combination of choices and needs no --trials."
        )
    if trials > size_of(space):
        size = counted(int(size_of(space)), "point")
        raise RecipeError(f"--trials {trials}: the space has only {size}. Give fewer, or --search grid.")
    if kind == "random":
        return AllTrials(_random(space, trials, seed))
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise MissingExtra("optuna", "optuna", "--search optuna") from None
    return Optuna(space, trials, seed)


@dataclass(frozen=True)
class AllTrials:
    """All trials at once."""

    trials: Sequence[Values]

    @property
    def count(self) -> int:
        """How many trials there are."""
        return len(self.trials)

    def more(self, losses: Mapping[Values, float | None]) -> list[Values]:
        """All of them at first, then none."""
        return [] if losses else list(self.trials)


@dataclass(frozen=True)
class Optuna:
    """Trials in four generations: each is proposed by a tree-structured Parzen estimator (Bergstra et al., 2011, "Algorithms for
    Hyper-Parameter Optimization", §4), as Optuna implements it, from the losses of all earlier ones.

    Within a generation, trials that have no loss yet count as bad ones, so that they keep apart. How many run at the same time
    changes nothing.

    Differs: the algorithm proposes one trial at a time; here those of a generation do not know of one another's losses.
    """

    space: Sequence[Axis]
    count: int
    seed: int = 0

    def more(self, losses: Mapping[Values, float | None]) -> list[Values]:
        """The next generation."""
        import optuna

        left = min(math.ceil(self.count / _GENERATIONS), self.count - len(losses))
        if left <= 0:
            return []
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        seed = fold("sweep", self.seed, len(losses)) % 2**32
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, constant_liar=True, n_startup_trials=math.ceil(self.count / _GENERATIONS), multivariate=True
            )
        study = optuna.create_study(sampler=sampler, direction="minimize")
        distributions = {axis.path: _distribution(axis) for axis in self.space}
        for values, loss in losses.items():
            state = optuna.trial.TrialState.FAIL if loss is None else optuna.trial.TrialState.COMPLETE
            study.add_trial(optuna.trial.create_trial(
                state=state, value=loss, params=_typed(self.space, values), distributions=distributions
            ))  # fmt: skip
        generation: list[Values] = []
        for _ in range(100 * left):
            parameters = study.ask(distributions).params
            point = named(self.space, [
                str(parameters[axis.path]) if isinstance(axis, CategoricalValue) else axis.text(parameters[axis.path])
                for axis in self.space
            ])  # fmt: skip
            if point not in losses and point not in generation:
                generation.append(point)
            if len(generation) == left:
                break
        return generation or _random(self.space, left, self.seed, losses)


def _distribution(axis: Axis) -> Any:
    import optuna

    if isinstance(axis, CategoricalValue):
        return optuna.distributions.CategoricalDistribution(axis.values)
    if axis.whole:
        return optuna.distributions.IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.log)


def _typed(space: Sequence[Axis], values: Values) -> dict[str, Any]:
    """The values of a trial as Optuna has them; rounding must not leave a range."""
    parameters: dict[str, Any] = {}
    for axis, value in zip(space, values, strict=True):
        text = value.removeprefix(f"{axis.path}=")
        if isinstance(axis, CategoricalValue):
            parameters[axis.path] = text
        else:
            number = min(max(float(text), axis.low), axis.high)
            parameters[axis.path] = int(number) if axis.whole else number
    return parameters


def _random(space: Sequence[Axis], trials: int, seed: int, losses: Mapping[Values, Any] | None = None) -> list[Values]:
    """Different random points. Point by point they follow from the seed: more trials begin with the same ones."""
    drawn: dict[Values, None] = {}
    number = 0
    while len(drawn) < trials:
        draw = np.random.Generator(np.random.Philox(key=fold("sweep", seed, number)))
        point = named(space, [axis.at(float(share)) for axis, share in zip(space, draw.random(len(space)), strict=True)])
        if point not in (losses or {}):
            drawn.setdefault(point)
        number += 1
        if number > 1000 * trials:
            raise RecipeError(f"--trials {trials}: the ranges are so narrow that they have fewer different points.")
    return list(drawn)
