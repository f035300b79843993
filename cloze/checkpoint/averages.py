"""Networks that average others: `average:` of a recipe's networks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from cloze.errors import RecipeError
from cloze.recipe.recipe import Recipe
from cloze.training.average_network import Average


def averages(recipe: Recipe, networks: Mapping[str, nn.Module], objectives: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """What keeps the networks that average others, and their heads, up to date.

    A head averages that of the other network with the same part and set; without one it is a `RecipeError`.
    """
    modules: dict[str, nn.Module] = {}
    for name, spec in recipe.networks.items():
        if spec.average is None:
            continue
        pairs = {name: (networks[name], networks[spec.average.of])}
        for entry in recipe.entries.values():
            heads = [(run.network, recipe.objective_key(run, o), (o.part.name, o.set), o) for run, o in entry.objectives()]
            trained = {which: key for network, key, which, _ in heads if network == spec.average.of}
            for network, key, which, objective in heads:
                if network != name or not list(objectives[key].parameters()):
                    continue
                if which not in trained:
                    raise RecipeError(
                        f"networks.{name}: its head {objective.state!r} averages that of {spec.average.of}, which has no "
                        f"{objective.part.name} of the set {objective.set!r}.\n  Give {spec.average.of} such an objective."
                    )
                pairs[key] = (objectives[key], objectives[trained[which]])
        modules[name] = Average(list(pairs.values()), decay=spec.average.decay, last=spec.average.last)
    return modules
