"""What a part does and which keys it takes, from its docstring and its signature."""

from __future__ import annotations

import inspect
import json
import re
from functools import lru_cache
from typing import NamedTuple

from cloze.errors import RecipeError, propose
from cloze.recipe import parts
from cloze.recipe.load import folders_of_recipes, load_recipe
from cloze.recipe.recipe import parts_in
from cloze.recipe.schema import arguments_of_part, describe
from cloze.registry import Argument


class Key(NamedTuple):
    """One key of a part: the values that it accepts, in words, and its default ("needed" if there is none)."""

    name: str
    accepts: str
    default: str


class Explanation(NamedTuple):
    """A part in words."""

    kind: str
    name: str
    text: str
    keys: tuple[Key, ...]
    recipes: tuple[str, ...]


def explain(name: str) -> list[Explanation]:
    """Every part of this name, or of this `kind.name`; none for a kind; an unknown one is a `RecipeError` with the nearest."""
    kind, _, rest = name.rpartition(".")
    matches = [(k, n) for k, n in all_parts() if n == rest and kind in ("", k)]
    if not matches and name not in parts.MODULES:
        part_names = {*parts.MODULES, *(n for _, n in all_parts())}
        raise RecipeError(f"unknown part {name!r}. {propose(rest, part_names)}\n  `cloze explain` lists all parts.")
    return [explain_part(k, n) for k, n in matches]


def summaries(kind: str | None = None) -> dict[str, dict[str, str]]:
    """By kind, the first sentence about each part; of all kinds, or of one."""
    sentences: dict[str, dict[str, str]] = {}
    for k, n in all_parts():
        if kind in (None, k):
            sentences.setdefault(k, {})[n] = summary(k, n)
    return sentences


def summary(kind: str, name: str) -> str:
    """The first sentence about a part: up to a dot before a capital letter or code."""
    paragraph = " ".join(_text(kind, name).split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s(?=[A-Z`])", paragraph, maxsplit=1)[0]


def all_parts() -> list[tuple[str, str]]:
    """Kind and name of every registered part."""
    return [(kind, name) for kind in parts.MODULES for name in parts.names(kind)]


def explain_part(kind: str, name: str) -> Explanation:
    """One part."""
    keys = tuple(Key(key, _accepts(argument), _default(argument)) for key, argument in arguments_of_part(kind, name).items())
    return Explanation(kind, name, _text(kind, name), keys, _users().get((kind, name), ()))


def _text(kind: str, name: str) -> str:
    """The docstring of a part, or nothing if it has none of its own."""
    builder = parts.builder_of(kind, name)
    docstring = vars(builder).get("__doc__") if inspect.isclass(builder) else builder.__doc__
    return inspect.cleandoc(docstring) if docstring and not docstring.startswith(f"{builder.__name__}(") else ""


def _accepts(argument: Argument) -> str:
    accepted = describe(argument.annotation)
    return f"{accepted}, or a schedule" if argument.live else accepted


def _default(argument: Argument) -> str:
    if argument.required:
        return "needed"
    value = list(argument.default) if isinstance(argument.default, (tuple, frozenset)) else argument.default
    return json.dumps(value, ensure_ascii=False, default=str)


@lru_cache(maxsize=1)
def _users() -> dict[tuple[str, str], tuple[str, ...]]:
    """The recipes that have each part."""
    users: dict[tuple[str, str], dict[str, None]] = {}
    for recipe in sorted(folders_of_recipes()):
        for part in parts_in(load_recipe(recipe)):
            users.setdefault((part.kind, part.name), {})[recipe] = None
    return {part: tuple(recipes) for part, recipes in users.items()}
