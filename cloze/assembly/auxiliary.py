"""`cloze finetune --auxiliary 0.5`: the checkpoint's language model is trained along with the task."""

from __future__ import annotations

from cloze.assembly.document import Node, Where, from_data, read_yaml
from cloze.assembly.origins import begins_with, networks_of
from cloze.errors import RecipeError


def add_language_model(tree: Node, weight: str, origin: str) -> None:
    """Add the objective `language_model` with this weight to every recipe of a tree whose network comes `from` this origin.

    GPT adds it with the weight 0.5 (Radford et al., 2018, §3.2), SiATL with one that falls from epoch to epoch (Chronopoulou et
    al., 2019, §3): `weight` is a number or a schedule, as in a recipe. It goes into the last pass of each entry. Raises a
    `RecipeError` if no network comes from there.
    """
    where = Where(f"--auxiliary {weight}")
    value = read_yaml(f"x: {weight}", str(where)).value["x"].plain()
    stages = tree.value.get("stages")
    found = [
        recipe for recipe in ([tree] if stages is None else [stage for _, stage in stages.items()])
        if recipe.is_mapping and any(begins_with(network, origin) for _, network in networks_of(recipe))
    ]
    if not found:
        raise RecipeError(f"{where}: no network of this recipe comes from the checkpoint.")
    for recipe in found:
        mixture = recipe.value.get("mixture")
        for entry in [recipe] if mixture is None else [one for _, one in mixture.items()]:
            passes = entry.value.get("passes")
            run = entry if passes is None else passes.value[-1]
            for holder, key, item in (
                (entry, "exercise", {"predict": "next"}), (run, "objectives", {"language_model": {"weight": value}})
            ):
                items = holder.value[key].value if key in holder.value else []
                holder.put(key, Node([*items, from_data(item, where)], where))
