"""`cloze finetune --auxiliary 0.5`: the checkpoint's language model is trained along with the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloze.checkpoint.build import Loaded
from cloze.document import Node, Where, from_data, parse_value
from cloze.errors import RecipeError
from cloze.recipe.origins import begins_with, networks_of

VIEW = "auxiliary"  # the copy of the text in which tokens are masked, and the pass that reads it
#: Devlin et al. (2019), §3.1: for checkpoints that come without a recipe.
BERT: Sequence[Mapping[str, Any]] = ({"mask": {"rate": 0.15}}, {"corrupt": {}}, {"predict": "masked"})
_OBJECTIVES = {"objectives", "passes", "mixture"}  # the keys that hold them
_MASKING = {"split_words", "join_words", "mask", "corrupt", "predict"}  # edits that belong to the prediction of masked tokens


def add_language_model(tree: Node, weight: str, origin: str, loaded: Loaded) -> None:
    """Add the loss of the checkpoint's language model, with this weight, to every recipe of a tree whose network comes from it.

    A network that reads from left to right predicts the next token of the task's text, in the last pass of each entry. GPT does
    so with the weight 0.5 (Radford et al., 2018, §3.2), SiATL with one that falls from epoch to epoch (Chronopoulou et al.,
    2019, §3): `weight` is a number or a schedule, as in a recipe. Any other network gets a copy of the text that is masked as in
    its own pre-training, and predicts the masked tokens in a pass of their own. Raises a `RecipeError` if no network comes from
    the checkpoint.
    """
    where = Where(f"--auxiliary {weight}")
    value = parse_value(weight, where, option="--auxiliary").plain()
    stages = tree.value.get("stages")
    recipes = [
        recipe for recipe in ([tree] if stages is None else [stage for _, stage in stages.items()])
        if recipe.is_mapping and any(begins_with(network, origin) for _, network in networks_of(recipe))
    ]
    if not recipes:
        raise RecipeError(f"{where}: no network of this recipe comes from the checkpoint.")
    names = [next(name for name, network in networks_of(recipe) if begins_with(network, origin)) for recipe in recipes]
    # Stages without objectives of their own share those of the whole recipe.
    holders = [recipe if recipe.value.keys() & _OBJECTIVES else tree for recipe in recipes]
    for name, recipe in {id(holder): (name, holder) for name, holder in zip(names, holders, strict=True)}.values():
        mixture = recipe.value.get("mixture")
        for entry in [recipe] if mixture is None else [mixture_entry for _, mixture_entry in mixture.items()]:
            if loaded.order == "left_to_right":
                _append(entry, "exercise", [{"predict": "next"}], where)
                passes = entry.value.get("passes")
                run = entry if passes is None else passes.value[-1]
                _append(run, "objectives", [{"language_model": {"weight": value}}], where)
            else:
                _add_masked(entry, name, masking_of(loaded.recipe), {"masked_language_model": {"weight": value}}, where)


def _append(holder: Node, key: str, items: Sequence[Any], where: Where) -> None:
    existing = holder.value[key].value if key in holder.value else []
    holder.put(key, Node([*existing, *(from_data(item, where) for item in items)], where))


def _add_masked(
    entry: Node, network: str, edits: Sequence[Mapping[str, Any]], objective: Mapping[str, Any], where: Where
) -> None:
    """A copy of the main view with the `edits`, and a pass of the network that reads it with the objective."""
    if "passes" not in entry.value:
        run = {"name": "main", "network": network, "objectives": entry.value["objectives"].plain()}
        entry.put("passes", Node([from_data(run, where)], where))
        del entry.value["objectives"]
    placed = [
        {name: {**(arguments if isinstance(arguments, Mapping) else {"what": arguments}), "in": VIEW}}
        for edit in edits for name, arguments in edit.items()
    ]
    _append(entry, "exercise", [{"copy": {"to": VIEW}}, *placed], where)
    _append(entry, "passes", [{"name": VIEW, "network": network, "view": VIEW, "objectives": [objective]}], where)


def masking_of(recipe: Mapping[str, Any] | None) -> Sequence[Mapping[str, Any]]:
    """The edits by which a checkpoint's recipe, in canonical form, masks framed text and predicts it; BERT's if it has none."""
    for entry in _entries(recipe or {}):
        edits = [(name, arguments) for edit in entry.get("exercise", ()) for name, arguments in edit.items()]
        framed = max((number for number, (name, _) in enumerate(edits) if name == "frame"), default=-1)
        tail = edits[framed + 1 :]
        predicts = [(name, arguments.get("what")) == ("predict", "masked") for name, arguments in tail]
        last = predicts.index(True) if True in predicts else None
        if last is None or not {name for name, _ in tail[: last + 1]} <= _MASKING or entry.get("order", "open") != "open":
            continue
        tail = tail[: last + 1]
        if any(name == "corrupt" and not arguments.get("infill") for name, arguments in tail):
            return [{name: {key: value for key, value in arguments.items() if key != "in"}} for name, arguments in tail]
    return BERT


def _entries(recipe: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for stage in reversed(recipe.get("stages", {"": recipe}).values()):
        for entry in stage.get("mixture", {"": {}}).values():
            yield {**{key: stage[key] for key in ("order", "exercise") if key in stage}, **entry}
