"""`cloze finetune RECIPE --tune TIME`: tries values of a recipe within a time, and keeps the trial with the best dev metric."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cloze.atomic import put
from cloze.errors import TaskError
from cloze.runs.finetuning.finetune import run_finetuning
from cloze.runs.finetuning.measure_result import FinetuningResult, write_task_json
from cloze.runs.finetuning.task_recipe import is_recipe_without_checkpoint, recipe_maker
from cloze.runs.options import FinetuneOptions, quiet, say_of
from cloze.runs.out_folder import claimed
from cloze.tasks.task import chosen_metric
from cloze.tasks.task import task as make_task
from cloze.training.schedule.budget import Budget

FILE = "cloze/trials.json"
_LETTERS = (None, [2, 5], [3, 6])


class ValueProposal(NamedTuple):
    """Where a value begins, and how it is drawn near the best one: within limits, by a normal distribution that narrows, of
    factors or of steps."""

    begin: float
    low: float
    high: float
    first: float  # deviations at the start and after three quarters of the time
    last: float
    whole: bool = True
    steps: bool = False


#: The moves of fastText's autotune.cc, from the defaults of its program (args.cc), which are not those of its published runs.
#: Letters are a choice among `_LETTERS`, by its place.
MOVES: Mapping[str, ValueProposal] = {
    "training.epochs": ValueProposal(5, 1, 100, 2.8, 2.5),
    "training.rate.peak": ValueProposal(0.1, 0.01, 5.0, 1.9, 1.0, whole=False),
    "network.width": ValueProposal(100, 1, 1000, 1.4, 0.3),
    "tables.ngrams.words": ValueProposal(1, 1, 5, 4.3, 2.4, steps=True),
    "tables.ngrams.characters": ValueProposal(0, 0, len(_LETTERS) - 1, 4.0, 1.4, steps=True),
    "tables.ngrams.buckets": ValueProposal(2_000_000, 10_000, 10_000_000, 2.0, 1.5),
}


def moved(best: Mapping[str, float], share: float, draw: np.random.Generator) -> dict[str, float]:
    """Values near the best ones, when a `share` of the time has passed (`autotune.cc`, `updateArgGauss`)."""
    values = {}
    for path, value in best.items():
        move = MOVES[path]
        deviation = move.first - (move.first - move.last) / 0.5 * min(0.5, max(share - 0.25, 0.0))
        by = draw.normal(0.0, deviation)
        neighbour = min(max(value + by if move.steps else value * 2**by, move.low), move.high)
        values[path] = float(int(neighbour)) if move.whole else float(f"{neighbour:.4g}")
    return values


def search_within(options: FinetuneOptions) -> FinetuningResult:
    """Train trials of a recipe that begins without a checkpoint until the time `tune` is over; `out` is the best one.

    The first trial has the values that fastText's program begins with, every other one values near the best so far. Values of
    `--set` stay as they are. A trial ends with its epochs or with the time. `cloze/trials.json` lists all of them. Anything but
    a time, several seeds, or another recipe is a `TaskError`.
    """
    budget = Budget.parse(options.tune or "")
    if budget.kind != "seconds":
        raise TaskError(f"--tune {options.tune}: expected a time, such as 5m.")
    if not is_recipe_without_checkpoint(options.checkpoint) or len(options.seeds) > 1:
        raise TaskError("--tune needs one seed and a recipe that starts without a checkpoint: cloze finetune fasttext-supervised")
    if options.fit is not None:
        option = "--fit" if options.fit else "--as-published"
        raise TaskError(f"--tune {options.tune}: searches for the values, so {option} does not apply. Omit one of them.")
    further = {"--extend": options.extend, "--keep-checkpoints": options.keep_checkpoints, "--mix-ngrams": options.mix_ngrams}
    if unfit := [option for option, asked in further.items() if asked]:
        raise TaskError(
            f"--tune {options.tune}: keeps the best of many short runs, so {unfit[0]} does not apply. Omit one of them."
        )
    assert options.out is not None
    with claimed(options.out, overwrite=options.overwrite, resume=False, say=say_of(options.report)):
        return _best_of_trials(options, options.out, budget)


def _best_of_trials(options: FinetuneOptions, out: Path, budget: Budget) -> FinetuningResult:
    """The trials of `search_within`; the caller holds `out`."""
    say, began, draw = say_of(options.report), time.monotonic(), np.random.default_rng(options.seeds[0])
    recipe = recipe_maker(options, None)()
    assert recipe.task is not None and recipe.task.type is not None
    task = make_task(recipe.task.type)
    metric = chosen_metric(task, recipe.task.metric)
    fixed = {override.partition("=")[0] for override in options.overrides}
    fixed |= {"network.width"} if options.init is not None else set()
    best, chosen = {path: float(move.begin) for path, move in MOVES.items() if path not in fixed}, None
    trials, records = out.with_name(f".{out.name}.trials"), list[dict[str, Any]]()
    shutil.rmtree(trials, ignore_errors=True)
    try:
        while not records or (time.monotonic() - began) + records[-1]["seconds"] / 2 < budget.amount:
            elapsed = time.monotonic() - began
            values = best if not records else moved(best, elapsed / budget.amount, draw)
            settings = _written(values)
            overrides = [*options.overrides, *(f"{path}={value}" for path, value in settings.items())]
            result = run_finetuning(replace(
                options, overrides=[*overrides, "training.evaluate_every=0"], baselines=False, overwrite=None,
                out=trials / str(len(records) + 1), report=quiet, within=max(budget.amount - elapsed, 1.0),
            ))
            if not all(outcome.finished for outcome in result.outcomes.values()):  # a signal came
                return result
            if not result.task_json:  # the time was over before its first step
                break
            score = float(result.task_json["dev"][metric])
            records.append({"values": settings, metric: score, "seconds": round(time.monotonic() - began - elapsed, 2)})
            better = chosen is None or (score > chosen[1]) == task.metrics[metric] and score != chosen[1]
            mark = " (best)" if better else ""
            say(f"trial {len(records)}: {metric} {score:.4f}{mark}  {'  '.join(map('='.join, settings.items()))}")
            if better:
                best, chosen = values, (result, score)
            else:
                shutil.rmtree(result.folder)
        if chosen is None:
            raise TaskError(f"--tune {budget.typed}: no trial was trained in this time. Give more, such as 5m.")
        folder = chosen[0].folder
        task_json = {**chosen[0].task_json, "tuned": {"trials": len(records), "seconds": round(time.monotonic() - began, 1)}}
        (folder / FILE).write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
        write_task_json(folder / "cloze" / "task.json", task_json)
        put(folder, out)
        return FinetuningResult(chosen[0].outcomes, out, task_json)
    finally:
        shutil.rmtree(trials, ignore_errors=True)


def _written(values: Mapping[str, float]) -> dict[str, str]:
    """Values as `--set` takes them. Where neither words nor letters make n-grams, there is one bucket (`autotune.cc`, `ask`)."""
    settings = {path: str(int(value)) for path, value in values.items()}
    if (rate := values.get("training.rate.peak")) is not None:
        settings["training.rate.peak"] = f"{rate:g}"
    if (index := values.get("tables.ngrams.characters")) is not None:
        letters = _LETTERS[int(index)]
        settings["tables.ngrams.characters"] = "null" if letters is None else str(letters)
    if (values.get("tables.ngrams.words"), index) == (1.0, 0.0) and "tables.ngrams.buckets" in settings:
        settings["tables.ngrams.buckets"] = "1"
    return settings
