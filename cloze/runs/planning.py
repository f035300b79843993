"""Plans runs and fits recipes to a budget, without training or writing anything."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.arguments import check_arguments
from cloze.budget.fit import can_be_fitted, short
from cloze.budget.fit_text import sample_for
from cloze.budget.fit_words import learns_words, most_passes
from cloze.budget.fitted import Fitted, fit_until_stable, pays_of_run, pays_of_words
from cloze.budget.micro_batch import why_no_forecast, within_memory
from cloze.checkpoint.build import build_step
from cloze.corpus import Store
from cloze.errors import BudgetError, CheckpointError, ClozeError, UserError
from cloze.processes import processes
from cloze.recipe.load import pretraining_recipe_names
from cloze.recipe.parts import engines
from cloze.recipe.recipe import Recipe
from cloze.runs.options import PretrainOptions, quiet
from cloze.runs.plan import Plan, Plans
from cloze.runs.preparing import copied, plan_of, prepare
from cloze.runs.request import Request, bound_to, choose_budget, load_request, run_origins
from cloze.runs.run import end_after_epochs, fit_to_budget
from cloze.runs.text_distance import text_distance
from cloze.training.forecasting.forecast import Forecast, Trials, forecast
from cloze.training.forecasting.pace import pace
from cloze.training.run import read_run_record
from cloze.training.schedule.budget import Budget

_WITH_DATA = "Give a budget in tokens, or plan a run on your data: cloze pretrain {} --corpus … --budget … --plan"
_BYTES_PER_TOKEN = 4.0  # assumed if there is no text
_WORDS, _DOCUMENTS, _KNOWN = 60_000, 150, 4000  # size of the random text for timing a recipe


@check_arguments
def plan(
    recipe: str | Path, *, corpus: Sequence[str | Path] | str | Path, out: Path | str = "RUN", **options: Any
) -> Plans:
    """What `pretrain` with these arguments would buy. Nothing is trained or written. `options` are further `PretrainOptions`.

    Text is encoded into a temporary folder. A stage that starts from the weights of another is timed with random weights, and no
    loss is predicted for it: the laws are those of new networks.

    Returns:
        One plan per stage of the recipe. `str(plan)` is what `cloze pretrain --plan` prints.

    Raises:
        ClozeError: As `pretrain`.
    """
    return Plans(plan_request(*load_request(PretrainOptions(recipe, corpus, out, **options))))


def plan_request(recipe: Recipe, request: Request) -> list[Plan]:
    """`plan` with what `load_request` returns."""
    out = request.options.folder
    if processes() > 1:
        raise UserError("--plan is for one process: leave torchrun out.")
    if read_run_record(out) is not None:
        raise CheckpointError(f"{out}: already holds a run, so there is nothing to plan. Choose another --out, or omit it.")
    silent = request.replaced(report=quiet)
    return [_planned(recipe, stage_request, budget) for recipe, stage_request, budget in _runs(recipe, silent)]


def _runs(recipe: Recipe, request: Request) -> Iterator[tuple[Recipe, Request, Budget]]:
    """The recipe, the request and the budget of every stage; of a recipe without stages, its own."""
    option, out = request.options.budget, request.options.folder
    if not recipe.stages:
        yield recipe, request, choose_budget(recipe, option, out)
    for stage in recipe.stages:
        budget = choose_budget(stage.recipe, None, out) if option is None else Budget.parse(option).part(stage.share)
        corpus, binds = bound_to(stage, recipe, request)
        starts_from_stage = stage.recipe.exported.origin in [earlier.name for earlier in recipe.stages]
        stage_request = replace(request, corpus=corpus, binds=binds, starts_from_stage=starts_from_stage)
        stage_request = stage_request.replaced(stage=stage.name, drop_stage_origins=True)
        yield stage_request.options.load(), stage_request, budget


def _planned(recipe: Recipe, request: Request, budget: Budget) -> Plan:
    with _nowhere() as folder:
        trials: Trials = {}
        origins = run_origins(recipe, request, {})
        fitted = fit_to_budget(recipe, request, folder, budget, origins, trials)
        run_budget = end_after_epochs(fitted, request, budget)
        run, stores, dev_stores = prepare(fitted.recipe, request, folder, run_budget, origins, dry_run=True)
        try:
            engine = pace(run, engines()) if learns_words(fitted.recipe) else None
            if engine is not None:
                cost: Forecast | None = engine.forecast(run)
            else:
                cost = None if why_no_forecast(run, 1) else within_memory(forecast(run, trials=trials), run, fitted.recipe)
            plan = plan_of(fitted.recipe, request, run, stores, fitted, cost)
            plan = replace(plan, copies=tuple(copied(fitted.recipe, stores, dev_stores)))
            start = origins.get(recipe.export)
            if start is None or request.starts_from_stage:
                return plan
            return replace(plan, distance=_distance(start, recipe, request, stores))
        finally:
            run.data.close()


def _distance(start: Path, recipe: Recipe, request: Request, stores: Mapping[str, Store]) -> tuple[str, ...]:
    """Lines on how far the text is from what the checkpoint that a run starts from has read; none if it is no running text."""
    sample = sample_for(recipe, request.corpus, request.options.text_format)
    if not sample.strip():
        return ()
    text_bytes = int(next(iter(stores.values())).report.get("bytes") or len(sample.encode()))
    return tuple(text_distance(start, sample, text_bytes=text_bytes, device=request.options.device).lines)


def fitted_recipe(
    recipe: str | Path, budget: str, *, corpus: str | Path | None = None, size: str | None = None, overrides: Sequence[str] = (),
    with_files: Sequence[Path] = (), device: str = "auto", fit: bool | None = None,
) -> tuple[Fitted, str]:
    """A recipe as `pretrain` would fit it to a budget, and the basis of the fit in words.

    `fit` as in `pretrain`. With a `corpus`, the fit is that of a run. Without one, a budget in seconds is measured on random
    text with the recipe's vocabulary, and the text counts as read once. Raises `BudgetError` if the budget means nothing without
    a text.
    """
    checked_recipe, request = load_request(PretrainOptions(
        recipe, corpus or (), budget=budget, size=size, overrides=overrides, with_files=with_files, device=device,
        fit=fit, report=quiet,
    ))
    run_budget, name = Budget.parse(budget), checked_recipe.name
    if checked_recipe.stages:
        raise BudgetError(f"{name}: its stages have texts of their own. Use `cloze pretrain {recipe} … --plan`.")
    if corpus is not None and len(checked_recipe.sources) > 1:
        raise BudgetError(f"{name}: reads {len(checked_recipe.sources)} corpora.\n  {_WITH_DATA.format(name)}")
    if not request.fit or not can_be_fitted(checked_recipe):
        return Fitted(checked_recipe), f"{name} {_why_unfitted(checked_recipe, request)}: a run trains it as written"
    with _nowhere() as folder:
        if corpus is not None:
            return fit_to_budget(checked_recipe, request, folder, run_budget, {}), f"measured on {corpus}"
        return _without_text(checked_recipe, request, run_budget, folder)


def _why_unfitted(recipe: Recipe, request: Request) -> str:
    if not can_be_fitted(recipe):
        return "has a kind of network that is not fitted"
    if request.options.fit is False:
        return "is kept as published"
    if str(request.options.recipe) in pretraining_recipe_names():
        return "was published with this budget"
    return "is a recipe of your own, fitted only with --fit"


def _without_text(checked_recipe: Recipe, request: Request, run_budget: Budget, folder: Path) -> tuple[Fitted, str]:
    """A fit from the budget alone, for a text as long as the budget."""
    once = "a text that is read once"
    if run_budget.kind == "epochs":
        raise BudgetError(f"{run_budget.typed}: how many tokens are that? Give the text with --corpus, or a budget in tokens.")
    if run_budget.kind in ("tokens", "bytes"):
        tokens = run_budget.amount / (1.0 if run_budget.kind == "tokens" else _BYTES_PER_TOKEN)
        by = once if run_budget.kind == "tokens" else f"{once}, at {_BYTES_PER_TOKEN:g} bytes a token"
        return fit_until_stable(checked_recipe, request.options.load, lambda recipe: tokens, int(tokens)), f"for {by}"
    text = folder / "random.txt"
    text.write_text(_random_text(), encoding="utf-8")
    size = next(iter(checked_recipe.texts.values())).tokenizer.arguments.get("size")
    fewer = [] if not isinstance(size, int) or size <= _KNOWN else [f"text.tokenizer.size={_KNOWN}"]
    try:
        recipe, request_ = request.options.load(fewer), replace(request, corpus=[str(text)])
        run, *_ = prepare(recipe, request_, folder / "run", run_budget, {}, dry_run=True)
    except ClozeError as error:
        why = str(error).splitlines()[0].replace(f"{text}:1: ", "").replace(str(text), "it").rstrip(".")
        name = checked_recipe.name
        raise BudgetError(f"{name}: cannot be timed on random text ({why}).\n  {_WITH_DATA.format(name)}") from None
    if fewer:
        run.step = build_step(checked_recipe, vocab_size=int(size or 0))
    pays = pays_of_words(run, run_budget, pace(run, engines())) if learns_words(checked_recipe) else pays_of_run(run, run_budget)
    updates = int(run_budget.amount) if run_budget.kind == "steps" else None
    fit = fit_until_stable(checked_recipe, request.options.load, pays, int(pays(checked_recipe)), updates=updates)
    run.data.close()
    by = f"for {once}, timed on random text"
    if learns_words(checked_recipe):
        most = most_passes(checked_recipe)
        by += f"; on a text of fewer than {short(pays(checked_recipe) / most)} tokens the run ends after {most} passes"
    return fit, by


@contextmanager
def _nowhere() -> Iterator[Path]:
    """A temporary folder."""
    with tempfile.TemporaryDirectory(prefix="cloze-plan-") as folder:
        yield Path(folder)


def _random_text() -> str:
    """Documents of random words with the skewed frequencies of a language."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(2 * _KNOWN)]
    weights = [1.0 / (rank + 3) for rank in range(len(words))]
    drawn = draw.choices(words, weights, k=_WORDS)
    sentences = [" ".join(drawn[start : start + 15]) + "." for start in range(0, _WORDS, 15)]
    per = len(sentences) // _DOCUMENTS
    return "\n\n".join("\n".join(sentences[start : start + per]) for start in range(0, len(sentences), per))
