"""The keys of a recipe's heads and objectives in the step that is built from it."""

from __future__ import annotations

from cloze.recipe.recipe import ObjectiveSpec, PassSpec, Recipe


def head_key(recipe: Recipe, run: PassSpec, objective: ObjectiveSpec) -> str:
    """The key of an objective's parameters in `Step.objectives`; a module's name cannot hold a dot."""
    return recipe.head_name(run, objective).replace(".", ":")


def objective_key(recipe: Recipe, run: PassSpec, objective: ObjectiveSpec) -> str:
    """The key of an objective in `Step.objectives`: that of its head, with its set if an earlier objective uses the head."""
    key = head_key(recipe, run, objective)
    owner = next(
        o for entry in recipe.entries.values() for r, o in entry.objectives() if head_key(recipe, r, o) == key
    )
    return key if owner.set == objective.set else f"{key}:{objective.set}"
