"""A recipe for a user's budget: measure what the budget pays for, fit the recipe to it (`fit.py`), and say what was changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloze.assembly.fit import Change, Facts, fit, fit_vocabulary, fits
from cloze.assembly.recipe import Recipe
from cloze.corpus import Store
from cloze.corpus.build import corpus_files
from cloze.training.budget import Budget
from cloze.training.forecast import Forecast, forecast
from cloze.training.run import Run

Say = Callable[[str], None]
Load = Callable[[Sequence[str]], Recipe]
Prepare = Callable[[Recipe], Run]

_GUESS = Facts(1e7, 10**7)  # a budget, until it is measured what the real one pays for
_PACKED = 4  # bytes of text in a byte of a compressed file, about
_COMPRESSED = (".xz", ".gz", ".bz2", ".zst")


@dataclass(frozen=True)
class Fitted:
    """A recipe, the changes that fit it to its budget, and what the budget pays for under it; None where nothing was fitted."""

    recipe: Recipe
    changes: tuple[Change, ...] = ()
    forecast: Forecast | None = None

    @property
    def overrides(self) -> list[str]:
        """The changes as `--set` takes them."""
        return [change.override for change in self.changes]

    def table(self, budget: Budget) -> str:
        """What was changed and why, and the line that gives the same run again."""
        tokens = self.forecast.tokens if self.forecast is not None else None
        pays = "" if tokens is None else f", about {tokens / 1e6:,.3g} million tokens"
        shown = [(change.path, f"{change.published} → {change.here}", change.why) for change in self.changes]
        widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
        rows = [f"  {path:<{widths[0]}}  {values:<{widths[1]}}  {why}" for path, values, why in shown]
        line = " ".join(f"--set {_quoted(override)}" for override in self.overrides)
        return "\n".join(
            [f"{self.recipe.name} fitted to {budget}{pays} (published → here; --as-published leaves it as it is):", *rows,
             f"  the same as options: {line}"]
        )


def fitted(
    recipe: Recipe, load: Load, *, budget: Budget, corpus: Sequence[str], tokenizer: Path | None, prepare: Prepare
) -> Fitted:
    """Fit `recipe` to a budget. `load(overrides)` gives it with further values set, before those of the user, which win.

    `prepare` builds a run from a recipe without starting it. It is asked once or twice: for a run with a guessed fit, which
    tells how many tokens the budget pays for.
    """
    if not fits(recipe):
        return Fitted(recipe)
    size = None if tokenizer is not None else text_bytes(corpus)
    known = [] if size is None else _effective(recipe, load, fit_vocabulary(recipe, size))
    guessed = [*known, *fit(_with(load, known), _GUESS)]
    run = prepare(_with(load, guessed))
    told = forecast(run)
    facts = Facts(_tokens(recipe, budget, run, told), sum(_text_tokens(run)))
    base = _with(load, known)
    changes = [*known, *_effective(base, lambda more: load([c.override for c in known] + list(more)), fit(base, facts))]
    run.data.close()
    return Fitted(_with(load, changes), tuple(changes), replace(told, tokens=facts.budget_tokens))


def _with(load: Load, changes: Sequence[Change]) -> Recipe:
    return load([change.override for change in changes])


def _effective(recipe: Recipe, load: Load, changes: Sequence[Change]) -> list[Change]:
    """The changes that still change something under what the user has set."""
    before = recipe.canonical()
    return [change for change in changes if load([change.override]).canonical() != before]


def _tokens(recipe: Recipe, budget: Budget, run: Run, told: Forecast) -> float:
    """Tokens that the budget pays for: its own, or those of the forecast of the guessed fit."""
    if budget.kind == "tokens":
        return budget.amount
    return told.tokens if told.tokens is not None else _GUESS.budget_tokens


def _text_tokens(run: Run) -> list[int]:
    """Tokens of the training text of every entry's source."""
    feeds: Any = getattr(run.data, "feeds", {})
    inner = [part for feed in feeds.values() for part in getattr(feed, "feeds", {"": feed}).values()]
    return [int(getattr(part.source, "tokens", 0)) for part in inner] or [0]


def text_bytes(corpus: Sequence[str]) -> int | None:
    """Bytes of text behind paths, about; None for a store, standard input, or what cannot be looked up."""
    if len(corpus) == 1 and (Store.is_store(corpus[0]) or corpus[0] == "-"):
        return None
    files = [Path(file) for file in corpus_files(list(corpus)) or ()]
    if not files or not all(file.is_file() for file in files):
        return None
    return sum(file.stat().st_size * (_PACKED if file.suffix in _COMPRESSED else 1) for file in files)


def _quoted(override: str) -> str:
    return f"'{override}'" if any(mark in override for mark in " []{}()") else override
