"""`pretrain`: trains a recipe on a corpus within a budget, into a run folder that transformers can open.

Each run goes through `train_recipe`: fit the recipe to the budget, `prepare` a `Run` (`preparing.py`), `train` it
(`training/loop.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cloze.budget.fit import can_be_fitted
from cloze.budget.fit_text import advise_on_text, sample_for
from cloze.budget.fit_words import learns_words
from cloze.budget.fitted import Fitted, fit_on_corpus
from cloze.checkpoint.share import share
from cloze.corpus.readers.not_text import require_apart
from cloze.display import choose_display
from cloze.errors import RecipeError, Say
from cloze.interop.files import read_json
from cloze.processes import processes, rank
from cloze.recipe.parts import engines
from cloze.recipe.recipe import Recipe
from cloze.runs.binds import bound_paths, require_text
from cloze.runs.held_texts import HeldTexts, record, trained_on
from cloze.runs.options import FinetuneOptions, PretrainOptions, accepts_fields_of
from cloze.runs.out_folder import claimed
from cloze.runs.preparing import prepare, require_same
from cloze.runs.request import Request, bound_to, choose_budget, load_request, run_origins
from cloze.text import Tokenizer
from cloze.training.checkpoints.mirror import Mirror, join_url
from cloze.training.distribution import check_launch
from cloze.training.forecasting.forecast import Trials
from cloze.training.loop import Outcome, train
from cloze.training.run import check_until, read_run_record
from cloze.training.schedule.budget import Budget
from cloze.training.trackers import store_model, stored_step

_FEW_UPDATES = 1000


@accepts_fields_of(PretrainOptions)
def pretrain(options: PretrainOptions) -> Outcome:
    """Pre-train `recipe` on `corpus` within `budget`, into the folder `out`; resume if it holds this run already.

    The arguments are `PretrainOptions`: each is independent of the others. A built-in recipe is fitted to a budget or size that
    differs from the published one (`cloze/budget/fit.py`), and a recipe of your own is not, unless `fit` says otherwise. `until`
    pauses the run at a share of its budget, with a held-out loss and a checkpoint; called without it, the run goes on as if it
    had not paused.

    Raises a `ClozeError` before training starts if the run is impossible.
    """
    recipe, request = load_request(options)
    return run_request(recipe, request)


def run_request(recipe: Recipe, request: Request) -> Outcome:
    """`pretrain` with what `load_request` returns."""
    options = request.options
    recipe_path, budget, out = Path(options.recipe), options.budget, options.folder
    require_apart([*request.corpus, *(path for paths in request.binds.values() for path in paths)], out)
    if not request.init and recipe_path.is_dir() and recipe_path.resolve() != out.resolve():
        request.say(
            f"{recipe_path}: this run's recipe is trained from random weights. To start from its weights: --init {recipe_path}"
        )
    check_until(options.until)
    check_launch(options.strategy, options.shard)
    if options.mirror is not None:
        Mirror(options.mirror).require_usable(out)
    with claimed(out):
        if recipe.stages:
            if options.until < 1:
                raise RecipeError(
                    f"--until {options.until:g}: {recipe.name} has stages, each with a budget of its own. Only a recipe "
                    "without stages can pause at a share of its budget."
                )
            outcome = run_stages(recipe, request, out, budget)
        else:
            run_budget = choose_budget(recipe, budget, out, extend=options.extend)
            outcome = train_recipe(recipe, request, out, run_budget, run_origins(recipe, request, {}))
        keep_with_trackers(options, outcome, out, request.say)
    return outcome


def keep_with_trackers(options: PretrainOptions | FinetuneOptions, outcome: Outcome, model: Path, say: Say) -> None:
    """With `--track-model`, keep what `share` writes of the folder `model` with the finished run of an outcome, once."""
    if not options.track_model or not outcome.finished or rank() != 0 or stored_step(outcome.folder) == outcome.step:
        return
    recipe = read_json(outcome.folder / "cloze" / "run.json", "the record of a run")["recipe"]
    with TemporaryDirectory() as parent:
        copy = Path(parent) / model.resolve().name
        share(model, copy)
        store_model(options.track, outcome.folder, copy, recipe, outcome.step, say)


def run_stages(recipe: Recipe, request: Request, out: Path, budget: str | None) -> Outcome:
    """Run the stages one after another. Finished runs are skipped, so that rerunning the command resumes where it stopped."""
    folders = {stage.name: out / "cloze" / "stages" / stage.name for stage in recipe.stages[:-1]} | {recipe.stages[-1].name: out}
    budgets = {
        stage.name: choose_budget(stage.recipe, None, folders[stage.name], extend=request.options.extend) if budget is None
        else Budget.parse(budget).part(stage.share)
        for stage in recipe.stages
    }
    for stage in recipe.stages:  # report a missing corpus before the first stage is trained
        require_text(bound_paths(stage.recipe, *bound_to(stage, recipe, request)), folders[stage.name])
    done, mirror = dict[str, Path](), request.options.mirror
    outcome: Outcome | None = None
    for stage in recipe.stages:
        last = stage is recipe.stages[-1]
        folder = folders[stage.name]
        corpus, binds = bound_to(stage, recipe, request)
        request.say(f"stage {stage.name}: {budgets[stage.name].typed}")
        outcome = train_recipe(
            replace(stage.recipe, stages=recipe.stages) if last else stage.recipe,
            replace(
                request, corpus=corpus, binds=binds, init={} if done else request.init,
                starts_from_stage=stage.recipe.exported.origin in done,
            ).replaced(stage=stage.name, mirror=mirror if last or mirror is None else join_url(mirror, folder.relative_to(out))),
            folder, budgets[stage.name], run_origins(stage.recipe, request, done),
        )
        if not outcome.finished:
            break
        done[stage.name] = folder
    assert outcome is not None  # a recipe with stages has at least one
    return outcome


def train_recipe(
    recipe: Recipe, request: Request, out: Path, budget: Budget, origins: Mapping[str, Path]
) -> Outcome:
    """Fit, prepare and train one recipe; called once for each stage, or once.

    `origins` are the checkpoints that its networks start from.
    """
    with claimed(out):  # a second time where `out` is the run's folder, not a stage's; that is allowed
        trials: Trials = {}
        fitted = fit_to_budget(recipe, request, out, budget, origins, trials)
        recipe = fitted.recipe
        if fitted.changed_values:
            request.say(fitted.table(budget.typed, request.options.stage))
        if request.closed:
            require_same(recipe, request, out, origins)
            described = read_json(out / "cloze" / "network.json", "the network of a run")
            return Outcome(out, int(described.get("step") or 0), finished=True, reason="budget", held_out=None)
        if read_run_record(out) is None and rank() == 0:
            _advise(recipe, request, origins)
            for note in trained_on(request.measure, request.corpus):
                request.say(note)
        texts = HeldTexts.due(request.measure, out, text_format=request.options.text_format, extend=request.options.extend)
        run, *_ = prepare(recipe, request, out, end_after_epochs(fitted, request, budget), origins, fitted=fitted, trials=trials)
        before = texts.figures(origins.get(recipe.export), device=request.options.device)
        if hint := choose_display().interrupting:
            request.say(hint)
        try:
            outcome = train(run, engines())
        finally:
            run.data.close()
            unread = "" if run.verification is None else run.verification.close()
        if unread:
            request.say(unread)
        if outcome.finished and texts.texts:
            record(out, outcome.step, before, texts.figures(out, device=request.options.device), say=request.say)
    few = outcome.finished and not outcome.compiled and outcome.step < _FEW_UPDATES
    if few and recipe.training.batch > 32 and not fitted.overrides:
        request.say(few_updates(recipe, outcome))
    return outcome


def _advise(recipe: Recipe, request: Request, origins: Mapping[str, Path]) -> None:
    """Print what the normalisation costs the text of a new run."""
    folder = request.options.tokenizer or next(iter(origins.values()), None)
    paths = next(iter(bound_paths(recipe, request.corpus, request.binds).values()))
    sample = sample_for(recipe, paths, request.options.text_format)
    for line in advise_on_text(recipe, sample, None if folder is None else Tokenizer.load(folder)) if sample else ():
        request.say(line)


def end_after_epochs(fitted: Fitted, request: Request, budget: Budget) -> Budget:
    """The budget. With fitted word vectors, a budget in time also ends after the number of passes that the fit or the user has
    set."""
    sets_epochs = any(value.startswith("training.epochs=") for value in (*fitted.overrides, *request.options.overrides))
    ends = sets_epochs and request.fit and budget.timed and learns_words(fitted.recipe)
    return replace(budget, max_epochs=fitted.recipe.training.epochs) if ends else budget


def fit_to_budget(
    recipe: Recipe, request: Request, out: Path, budget: Budget, origins: Mapping[str, Path], trials: Trials | None = None
) -> Fitted:
    """The recipe fitted to the budget. A resumed run keeps its values."""
    if not request.fit:
        return Fitted(recipe)
    old = read_run_record(out)
    if old is not None:
        overrides = tuple(old.get("fitted", ()))
        return Fitted(request.options.load(overrides), overrides=overrides)
    if request.options.fit and not can_be_fitted(recipe):
        request.say(f"{recipe.name}: --fit changes nothing: this kind of network is not fitted. It is trained as written.")
    if processes() > 1 and budget.timed:
        request.say(
            f"{recipe.name}: not fitted to {budget.typed}: each process would measure its own speed. Give tokens or steps."
        )
        return Fitted(recipe)
    first = next(iter(bound_paths(recipe, request.corpus, request.binds).values()))  # a tokenizer is trained on it
    return fit_on_corpus(
        recipe, request.options.load, budget=budget, corpus=first,
        tokenizer=request.options.tokenizer or next(iter(origins.values()), None),
        prepare=lambda recipe: prepare(recipe, request, out, budget, origins, dry_run=True)[0], trials=trials,
        continued=request.continues(recipe), text_format=request.options.text_format,
    )


def few_updates(recipe: Recipe, outcome: Outcome) -> str:
    """A hint if a large published batch left few updates: early progress depends on their number."""
    smaller = "Try --set training.batch=32 --set training.rate.peak=1e-3"
    way = "--fit fits the recipe to its budget." if can_be_fitted(recipe) else smaller
    return (
        f"hint: the budget was spent in {outcome.step:,} updates of {recipe.training.batch} rows. A budget this small teaches\n"
        f"  more in smaller batches at a higher rate. {way}"
    )
