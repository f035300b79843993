"""Before a run starts: forecast its cost, choose how many rows fit into memory at once, and refuse a run that cannot fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from cloze.checkpoint.build import build_part, build_step
from cloze.errors import RecipeError, Say
from cloze.processes import rank
from cloze.recipe.parts import engines
from cloze.recipe.recipe import Recipe
from cloze.training.engine import choose
from cloze.training.forecasting import memory
from cloze.training.forecasting.forecast import SHARE, Forecast, Trials, forecast, needs
from cloze.training.forecasting.pace import Pace
from cloze.training.forecasting.trial import update_of
from cloze.training.run import Run
from cloze.training.step import StepModule

_MONTHS = 90 * 86_400.0  # seconds; a longer published budget gets a hint


def choose_micro_batch(
    run: Run, recipe: Recipe, *, ranks: int, rows: int | None, resumes: bool, say: Say, trials: Trials | None = None,
    pace: Pace | None = None,
) -> Forecast | None:
    """Print and return the forecast of a new run, and set how many rows it reads at once; None if there is no forecast.

    The value of the recipe, or that of a resumed run (`rows`), stays if it fits. Otherwise the batch is halved until it fits,
    which changes results only by rounding. Several processes get no forecast, and a compiled engine gets one only if its `pace`
    was measured (see `why_no_forecast`). `trials` holds earlier measurements of the same network. Raises `RecipeError` if nothing
    fits.
    """
    data: Any = run.data
    if rows is not None:
        data.set_micro_batch(rows)
    run.micro_batch = data.micro_batch
    why = why_no_forecast(run, ranks)
    if why and pace is not None and ranks == 1:
        cost = pace.forecast(run)
        say(str(cost))
        return cost
    if why:
        if not resumes and rank() == 0:
            say(f"no forecast of {why}")
        return None
    cost, requested = within_memory(forecast(run, trials=trials), run, recipe), data.micro_batch
    if cost.micro_batch != requested:
        data.set_micro_batch(cost.micro_batch)
        run.micro_batch = cost.micro_batch
        if resumes:
            say(f"{run.folder}: to save memory, reads {cost.micro_batch:,} rows at once instead of {rows or cost.batch:,}.")
    if resumes:
        return cost
    say(str(cost))
    if cost.seconds is not None and cost.seconds > _MONTHS and run.budget.kind != "seconds":
        say("hint: a smaller --budget, such as 10m, shortens the run; --size (tiny to large) changes the network.")
    return cost


def within_memory(cost: Forecast, run: Run, recipe: Recipe) -> Forecast:
    """The forecast with as many rows at once as fit into memory; raises `RecipeError` if nothing fits."""
    return cost if cost.fits(cost.micro_batch) else replace(cost, micro_batch=_smaller(run, recipe, cost))


def why_no_forecast(run: Run, ranks: int) -> str:
    """Why a run gets no forecast, in words; empty if it gets one."""
    if ranks > 1:
        return f"time and memory, because {ranks} processes train, and each would measure its own speed."
    if choose(run, engines(), ranks).engine is not None:
        return "time and memory, because the speed of the compiled engine is known only once it runs."
    return ""


def require_memory(recipe: Recipe, *, vocab_size: int, tables: Mapping[str, Any], device: torch.device) -> None:
    """Raise a `RecipeError` for a network that cannot fit, before any memory is allocated. On a GPU, the forecast checks this."""
    if device.type != "cpu":
        return
    step = build_step(recipe, vocab_size=vocab_size, device="meta", tables=tables)
    parameters = sum(p.numel() for p in step.parameters())
    free = memory.available(device)
    if free is None or 16 * parameters < SHARE * free:
        return
    mean = recipe.training.average is not None
    state = update_of(build_part(recipe.training.optimizer), torch.device("cpu"), mean=mean).state
    if needs(parameters, state) > free:
        raise RecipeError(
            f"{recipe.name}: its {parameters:,} parameters with gradients and {recipe.training.optimizer.name} take "
            f"{needs(parameters, state) / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free.\n"
            f"  About {SHARE * free / needs(1_000_000, state):,.0f} million parameters fit here. Take a smaller --size (large, "
            "base, medium, small, mini or tiny) or vocabulary."
        )


def require_one_process(recipe: Recipe, step: StepModule, ranks: int, strategy: str) -> None:
    """Refuse to split the rows of a step between processes where an objective compares them with each other, and to divide the
    parameters of a network where an objective reads them."""
    if step.reads_parameters and ranks > 1 and strategy == "fsdp":
        raise RecipeError(
            f"{recipe.name}: an objective reads the parameters of a network, and --strategy fsdp divides them among processes."
            "\n  Use --strategy ddp, with which every process holds all."
        )
    group = recipe.training.group
    if group is None and step.batch_scope_objectives and ranks > 1:
        raise RecipeError(
            f"{recipe.name}: {step.batch_scope_objectives[0]} compares all rows of a step with each other, and {ranks} processes "
            "would split them.\n  Start it without torchrun, in one process, or compare the rows within groups: "
            f"--set training.group={max(recipe.training.batch // ranks, 1)}"
        )
    if group is not None and ranks > 1 and recipe.training.batch % (group * ranks):
        raise RecipeError(
            f"{recipe.name}: {ranks} processes cannot share a step of {recipe.training.batch:,} rows in whole groups of {group} "
            f"(training.group).\n  Start as many processes as divide the number of groups, or "
            f"--set training.batch={max(recipe.training.batch // (group * ranks), 1) * group * ranks}"
        )


def _smaller(run: Run, recipe: Recipe, cost: Forecast) -> int:
    """How many rows at once fit; a `RecipeError` if the recipe sets more, needs its batch whole, or not one row fits."""
    assert cost.available is not None  # with unknown memory everything fits
    short = (
        f"{recipe.name}: {cost.micro_batch:,} rows at once take about {cost.memory / 1e9:,.1f} GB of memory, and "
        f"{cost.available / 1e9:,.1f} GB are available."
    )
    if not cost.largest:
        raise RecipeError(
            f"{short}\n  Not even one row fits (about {cost.peak(1) / 1e9:,.1f} GB). Take a smaller --size, shorter rows or a "
            "smaller vocabulary."
        )
    if recipe.training.micro_batch is not None:
        raise RecipeError(f"{short}\n  What fits: --set training.micro_batch={cost.largest}")
    if recipe.training.group is not None:
        raise RecipeError(f"{short}\n  They are compared with each other. What fits: --set training.group={cost.largest}")
    if run.step.batch_scope_objectives:
        raise RecipeError(
            f"{short}\n  {run.step.batch_scope_objectives[0]} needs all rows of a batch at once. "
            f"What fits: --set training.batch={cost.largest}"
        )
    return cost.largest
