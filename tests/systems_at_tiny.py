"""Which named recipes are the same system at tiny size, so that a contract need not be tested on all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from cloze.assembly.load import load_recipe, recipe_names


@cache
def _at_tiny(name: str) -> dict[str, Any]:
    return load_recipe(name, size="tiny", overrides=["training.batch=4"]).canonical()


def distinct(key: Callable[[str], object] = lambda name: None, *, only: tuple[str, ...] = ()) -> list[str]:
    """The named recipes without those that differ at tiny size in name, paper and notes alone: larger sizes of one system.

    `key` tells further recipes apart. With `only`, recipes are the same if these sections are, whatever they predict.
    """
    found: dict[str, str] = {}
    for name in recipe_names():
        said = {
            section: _without_objectives(value) if only else value for section, value in _at_tiny(name).items()
            if (section in only if only else section not in ("name", "paper", "notes"))
        }
        found.setdefault(json.dumps([said, key(name)], sort_keys=True), name)
    return sorted(found.values())


def _without_objectives(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_objectives(inner) for name, inner in value.items() if name != "objectives"}
    return [_without_objectives(inner) for inner in value] if isinstance(value, list) else value
