"""Fits a recipe to a user's budget: measures how many tokens the budget pays for, fits (`fit.py`), and lists the changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloze.batching import Data, MixedFeed
from cloze.budget.facts import BudgetFacts, ChangedValue
from cloze.budget.fit import can_be_fitted, fit, fit_vocabulary, short
from cloze.budget.fit_text import fit_normalisation, sample_for
from cloze.budget.fit_words import learns_words
from cloze.corpus import Store
from cloze.corpus.readers.files import TextFile
from cloze.corpus.stores.build import corpus_files
from cloze.document import Where, from_data
from cloze.recipe import paths
from cloze.recipe.expand import expand
from cloze.recipe.faults import Faults
from cloze.recipe.parts import engines
from cloze.recipe.recipe import Recipe
from cloze.training.forecasting.forecast import Trials, forecast
from cloze.training.forecasting.pace import Pace, pace
from cloze.training.run import Run
from cloze.training.schedule.budget import Budget

Load = Callable[[Sequence[str]], Recipe]
Prepare = Callable[[Recipe], Run]
Pays = Callable[[Recipe], float]

_GUESS = BudgetFacts(1e7, 10**7)  # assumed until the real budget has been measured
_BYTES = 5  # of text per word, about
_PACKED = 4  # bytes of text per byte of a compressed file, about
_COMPRESSED = (".xz", ".gz", ".bz2", ".zst")
_ROUNDS = 6  # with a budget in steps, batch and tokens depend on each other


@dataclass(frozen=True)
class Fitted:
    """A recipe, the changes that fit it to its budget, and the tokens that the budget pays for (None: not known). `overrides`
    holds the fitted values as `--set` takes them, `changed_values` the reasons as far as they are known. `pace` is the measured
    speed of a compiled engine, if one trains.
    """

    recipe: Recipe
    changed_values: tuple[ChangedValue, ...] = ()
    tokens: float | None = None
    overrides: tuple[str, ...] = ()
    pace: Pace | None = None

    def table(self, budget: str, stage: str | None = None) -> str:
        """The changes with their reasons, and the options that give the same run. `stage` names the stage of a recipe with
        several."""
        pays = "" if self.tokens is None else f", about {short(self.tokens)} tokens"
        title = f"{self.recipe.name} fitted to {budget}{pays} (recipe → fitted; --as-published keeps the values of the recipe):"
        return table_of(title, self.changed_values, self.overrides, stage)


def table_of(
    title: str, changes: Sequence[ChangedValue], overrides: Sequence[str], stage: str | None = None, *,
    of_network: Sequence[ChangedValue] = (),
) -> str:
    """A title, the changes with their reasons, and the options that have the same effect: `--change` for those `of_network`."""
    cells = [(change.path, f"{change.published} → {change.fitted}", change.why) for change in [*of_network, *changes]]
    widths = [max(len(row[column]) for row in cells) for column in (0, 1)]
    rows = [f"  {path:<{widths[0]}}  {values:<{widths[1]}}  {why}" for path, values, why in cells]
    prefix = "" if stage is None else f"stages.{stage}."
    options = [
        *(f"--change {change.fitted}" for change in of_network),
        *(f"--set {_quoted(prefix + override)}" for override in overrides),
    ]
    line = " ".join(options)
    return "\n".join([title, *rows, f"  as options: {line}"])


def fit_on_corpus(
    recipe: Recipe, load: Load, *, budget: Budget, corpus: Sequence[str], tokenizer: Path | None, prepare: Prepare,
    trials: Trials | None = None, continued: bool = False, text_format: str = "auto",
) -> Fitted:
    """Fit `recipe` to a budget. `load(overrides)` returns it with further values set; the user's own values win.

    `prepare` builds a run from a recipe without starting it. It is called once, with a guessed fit, to measure how many tokens
    the budget pays for. `trials` keeps the measurements of that run. `continued`: the exported network starts from a checkpoint.
    """
    if not can_be_fitted(recipe):
        return Fitted(recipe)
    size = None if tokenizer is not None else text_bytes(corpus)
    changes_by_text: list[ChangedValue] = []
    if size is not None:
        sample = sample_for(recipe, corpus, text_format)
        proposals = [*fit_vocabulary(recipe, size, sample), *fit_normalisation(recipe, sample)]
        changes_by_text, _ = apply_unless_overridden(load, proposals)
    base = _with(load, changes_by_text) if changes_by_text else recipe
    words = learns_words(recipe)
    guess = BudgetFacts(_GUESS.budget_tokens, size // _BYTES) if words and size is not None else _GUESS
    run = prepare(_with(load, [*changes_by_text, *fit(base, guess._replace(continued=continued))]))
    text = sum(_text_tokens(run))
    engine = pace(run, engines()) if budget.timed and words else None
    pays = pays_of_words(run, budget, engine) if words else pays_of_run(run, budget, trials)
    run.data.close()
    fixed_paths = () if budget.timed else ("training.epochs",)
    updates = int(budget.amount) if budget.kind == "steps" else None
    fitted = fit_until_stable(
        base, load, pays, text, prior_changes=changes_by_text, fixed_paths=fixed_paths, continued=continued, updates=updates
    )
    return replace(fitted, pace=engine, tokens=fitted.tokens if budget.timed or not words else None)


def fit_until_stable(
    base: Recipe, load: Load, pays: Pays, text_tokens: int, *, prior_changes: Sequence[ChangedValue] = (),
    fixed_paths: Sequence[str] = (), continued: bool = False, updates: int | None = None,
) -> Fitted:
    """Fit a recipe that already has `prior_changes` to a budget; `pays(recipe)` returns how many tokens the budget pays for.

    Changes that the user's own values override, and changes at `fixed_paths`, are dropped; the others are fitted to those values.
    """
    fixed_paths = list(fixed_paths)
    changes_in_effect, recipe, tokens = list(prior_changes), base, pays(base)
    for _ in range(_ROUNDS):
        changes = [*prior_changes, *fit(base, BudgetFacts(tokens, text_tokens, continued, updates), fixed_paths=fixed_paths)]
        changes_in_effect, recipe = apply_unless_overridden(load, changes)
        undone = [change.path for change in changes if change not in changes_in_effect]
        before, tokens = tokens, pays(recipe)
        if not undone and abs(tokens - before) <= 0.02 * before:
            break
        fixed_paths += undone
    overrides = tuple(change.override for change in changes_in_effect)
    return Fitted(recipe, tuple(changes_in_effect), tokens, overrides)


def pays_of_run(run: Run, budget: Budget, trials: Trials | None = None) -> Pays:
    """The tokens that a budget pays for, as a function of the recipe, measured on a run of a similar recipe."""
    if budget.kind == "tokens":
        return lambda recipe: budget.amount
    trials = {} if trials is None else trials
    return lambda recipe: forecast(run, batch=recipe.training.batch, trials=trials).tokens or _GUESS.budget_tokens


def pays_of_words(run: Run, budget: Budget, engine: Pace | None) -> Pays:
    """The tokens that a budget pays for when word vectors are learned, as a function of the recipe: those of all passes over the
    text that fit into a time, with a compiled engine or with the loop.

    A budget of tokens, steps or epochs counts as one pass: nothing depends on it.
    """
    epochs = 1.0 if not budget.timed else engine.epochs(budget) if engine is not None else forecast(run).epochs or 1.0
    tokens = epochs * sum(_text_tokens(run))
    return lambda recipe: tokens


def _with(load: Load, changes: Sequence[ChangedValue]) -> Recipe:
    return load([change.override for change in changes])


def apply_unless_overridden(load: Load, changes: Sequence[ChangedValue]) -> tuple[list[ChangedValue], Recipe]:
    """The changes that the user's own values leave in effect, and the recipe with them."""
    recipe = _with(load, changes)
    recipes = {"": recipe, **{f"stages.{stage.name}.": stage.recipe for stage in recipe.stages}}
    trees = {
        prefix: from_data(replace(stage_recipe, stages=()).canonical(), Where(recipe.name))
        for prefix, stage_recipe in recipes.items()
    }
    for tree in trees.values():
        expand(tree, Faults())
    return [change for change in changes if _value(trees, change.path) == change.fitted], recipe


def _value(trees: Mapping[str, Any], path: str) -> Any:
    """The value at a path, in the tree of the stage that the path names; None if there is none."""
    at = max((at for at in trees if path.startswith(at)), key=len)
    node = paths.locate(trees[at], path[len(at) :]).node
    return None if node is None else node.plain()


def _text_tokens(run: Run) -> list[int]:
    """Tokens of the training text of every entry's source."""
    feeds = run.data.feeds.values() if isinstance(run.data, Data) else ()
    inner = [part for feed in feeds for part in (feed.feeds.values() if isinstance(feed, MixedFeed) else [feed])]
    return [int(getattr(part.source, "tokens", 0)) for part in inner] or [0]


def text_bytes(corpus: Sequence[str]) -> int | None:
    """About how many bytes of text there are at these paths; None for a store, standard input, or unknown sizes."""
    if len(corpus) == 1 and (Store.is_store(corpus[0]) or corpus[0] == "-"):
        return None
    sizes = [_bytes_of(file) for file in corpus_files(list(corpus))]
    return None if None in sizes or not sizes else sum(size for size in sizes if size is not None)


def _bytes_of(file: str) -> int | None:
    if (dataset := TextFile(file).dataset) is not None:
        return sum(dataset.sizes) or None
    path = Path(file)
    return path.stat().st_size * (_PACKED if path.suffix in _COMPRESSED else 1) if path.is_file() else None


def _quoted(override: str) -> str:
    return f"'{override}'" if any(mark in override for mark in " []{}()") else override
