"""The networks and heads whose vectors of texts a recipe compares: the towers of queries and passages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cloze.errors import ClozeError
from cloze.recipe.load import recipe_from_data
from cloze.recipe.origins import borrowed
from cloze.recipe.recipe import EntrySpec, ObjectiveSpec, PassSpec, Recipe

Towers = Mapping[str, Mapping[str, str | None]]  # a `network` (None: the exported one) and a `head`, by the name of the reading


def read_heads(entry: EntrySpec) -> Iterator[tuple[ObjectiveSpec, dict[str, tuple[PassSpec, ObjectiveSpec]]]]:
    """The objectives of an entry that read scores of others, each with the passes and objectives of these by its readings."""
    sources = {f"{pass_.name}.{objective.state}": (pass_, objective) for pass_, objective in entry.objectives()}
    for _, objective in entry.objectives():
        heads = {name: sources[path] for name, path in objective.read.items() if path in sources}
        if heads:
            yield objective, heads


def describe_towers(recipe: Recipe, heads: Mapping[str, tuple[PassSpec, ObjectiveSpec]]) -> Towers:
    """Heads with their passes as towers."""
    return {
        name: {"network": None if pass_.network == recipe.export else pass_.network, "head": objective.state}
        for name, (pass_, objective) in heads.items()
    }


def towers_in(plain_recipe: Mapping[str, Any] | None) -> Towers:
    """The towers of queries and passages of the run that has this recipe, as plain data: those of the first objective that
    compares a `query` with a `key` of another network or head. Empty if there are none, or if no recipe is known."""
    if plain_recipe is None:
        return {}
    try:
        recipe = recipe_from_data(plain_recipe)
    except ClozeError:  # names parts of a file that is not imported
        return {}
    for entry in recipe.entries.values():
        for _, heads in read_heads(entry):
            towers = describe_towers(recipe, heads)
            networks = {pass_.network for pass_, _ in heads.values()}
            if {"query", "key"} <= towers.keys() and towers["query"] != towers["key"] and not networks & borrowed(recipe):
                return towers
    return {}
