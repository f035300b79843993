"""Which named recipes are the same system at tiny size, so that a contract need not be tested on all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from cloze.recipe.load import load_recipe, recipe_names

#: Sections of a recipe that hold numbers of training: rates, budgets, batches.
NUMBERS = ("training", "schedule")
#: How long a phase is, which a contract never waits for.
SPANS = ("share", "steps", "epochs", "tokens")
#: A size that `--size` keeps in its ratio to the width.
RATIO = "inner"


@cache
def _at_tiny(name: str) -> dict[str, Any]:
    return load_recipe(name, size="tiny", overrides=["training.batch=4"]).canonical()


def distinct(key: Callable[[str], object] = lambda name: None, *, only: tuple[str, ...] = ()) -> list[str]:
    """The named recipes without those that are the same system at tiny size: larger ones, and ones trained at another rate.

    The same is what differs in name, paper and notes alone, in the width of feed-forwards, and in numbers of training and rates
    of dropout that are not zero in both. `tests/recipes/test_published.py` compares these numbers with the published ones for
    every recipe. `key` tells further recipes apart. With `only`, recipes are the same if these sections are, whatever they
    predict.
    """
    systems: dict[tuple[str, object], str] = {}
    for name in recipe_names():
        systems.setdefault((_said(name, only), key(name)), name)
    return sorted(systems.values())


@cache
def _said(name: str, only: tuple[str, ...]) -> str:
    """What tells a recipe from others, as text."""
    said = {
        section: _without_objectives(value) if only else _without_numbers(value, drawn=section in NUMBERS)
        for section, value in _at_tiny(name).items()
        if (section in only if only else section not in ("name", "paper", "notes"))
    }
    return json.dumps(said, sort_keys=True)


def covering(names: Iterable[str]) -> set[str]:
    """Some of these recipes, which have every key and every choice of all of them: a recipe is added if it has most of what the
    others lack. What two recipes combine differently is one thing here."""
    options = {
        name: set(_options({key: value for key, value in _at_tiny(name).items() if key not in ("name", "paper", "notes")}))
        for name in sorted(names)
    }
    missing, chosen = set[tuple[str, ...]]().union(*options.values()), set[str]()
    while missing:
        name = max(options, key=lambda name: len(options[name] & missing))
        chosen.add(name)
        missing -= options[name]
    return chosen


def has_edit(name: str, edit: str) -> bool:
    """Whether a named recipe has an edit in one of its exercises; much faster than loading it at its own size."""
    return any(path[-3:] == ("exercise", "*", edit) for path in _options(_at_tiny(name)))


def _options(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of keys, and those of texts, truth values and nulls with the value; the places in a list are one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from _options(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from _options(inner, (*path, "*"))
    elif isinstance(value, bool | str) or value is None:
        yield (*path, repr(value))


def _without_objectives(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_objectives(inner) for name, inner in value.items() if name != "objectives"}
    return [_without_objectives(inner) for inner in value] if isinstance(value, list) else value


def _without_numbers(value: Any, *, drawn: bool) -> Any:
    """With `drawn`, numbers become whether they are zero; rates of dropout always do."""
    if isinstance(value, dict):
        kept = {name: inner for name, inner in value.items() if not (drawn and name in SPANS) and name != RATIO}
        return {name: _without_numbers(inner, drawn=drawn or name.endswith("dropout")) for name, inner in kept.items()}
    if isinstance(value, list):
        return [_without_numbers(inner, drawn=drawn) for inner in value]
    return value != 0 if drawn and isinstance(value, int | float) and not isinstance(value, bool) else value
