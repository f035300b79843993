"""Puts facts about labelled text, items and graphs into the recipe: the number of classes of a head, the mean of numbers, the
width of features, relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.checkpoint.build import build_part
from cloze.corpus import RecordStore, Store, TripleStore
from cloze.corpus.items import ItemArray
from cloze.corpus.items.item_store import FEATURES
from cloze.errors import CorpusError, TaskError, counted
from cloze.exercises.items.ask_items import AskItems
from cloze.exercises.show import Show
from cloze.objectives.objective import balanced
from cloze.recipe.parts import builder_of, class_of
from cloze.recipe.recipe import EntrySpec, NetworkSpec, ObjectiveSpec, PartSpec, Recipe
from cloze.registry import parameters


def with_data_facts(recipe: Recipe, stores: Mapping[str, Store]) -> Recipe:
    """The recipe with facts about its labelled text, its items or its graph, for the parts that need them.

    Objectives get the number of `classes` or `spans`, the `mean`, the ids of the `relations`, or the `numbers` that an item
    has; networks get the width of the features that they read. Labelled text with fewer than two
    classes is a `TaskError`.
    """
    entries = {name: _complete_entry(recipe, entry, stores[entry.source]) for name, entry in recipe.entries.items()}
    completed = recipe if entries == dict(recipe.entries) else replace(recipe, entries=entries)
    widths = {name: kinds[FEATURES].width for name, kinds in _item_kinds(stores).items() if FEATURES in kinds}
    networks = {name: _complete_network(network, widths) for name, network in completed.networks.items()}
    return completed if networks == dict(completed.networks) else replace(completed, networks=networks)


def _item_kinds(stores: Mapping[str, Store]) -> dict[str, Mapping[str, ItemArray]]:
    """The arrays of the sets of items of all stores."""
    stored_items = [store.items for store in stores.values() if isinstance(store, RecordStore) and store.items is not None]
    return {name: item_set.kinds for items in stored_items for name, item_set in items.sets.items()}


def _complete_network(network: NetworkSpec, widths: Mapping[str, int]) -> NetworkSpec:
    """A network that reads items, with the width that these have in its argument `items`."""
    argument = None if network.part is None else network.part.arguments.get("items")
    arguments = argument.arguments if isinstance(argument, PartSpec) else argument
    if network.part is None or not isinstance(arguments, Mapping) or "width" not in arguments:
        return network
    width = widths.get(str(arguments.get("set", "regions")))
    if width is None or width == arguments["width"]:
        return network
    new_arguments = {**arguments, "width": width}
    items = replace(argument, arguments=new_arguments) if isinstance(argument, PartSpec) else new_arguments
    return replace(network, part=replace(network.part, arguments={**network.part.arguments, "items": items}))


def _item_arguments(entry: EntrySpec, store: Store) -> dict[str, dict[str, Any]]:
    """For each set of targets that `ask_items` makes: how many classes or numbers the items have."""
    arguments: dict[str, dict[str, Any]] = {}
    for edit in entry.exercise:
        asks = class_of("edit", edit.part.name) is AskItems
        if asks and isinstance(store, RecordStore) and store.items is not None:
            question = build_part(edit.part)
            item_set = store.items.sets.get(question.items)
            if item_set is not None and question.array in item_set.kinds:
                counts = (
                    {"classes": item_set.classes[question.array]} if question.whole
                    else {"numbers": item_set.kinds[question.array].width}
                )
                arguments[question.name] = counts
    return arguments


def _head_arguments(recipe: Recipe, entry: EntrySpec, store: Store) -> dict[str, dict[str, Any]]:
    """The arguments of heads that labelled text determines, for each set of targets that the edits of an entry take from it."""
    if not isinstance(store, RecordStore):
        return {}
    stored = store.stored
    answer = build_part(recipe.sources[entry.source]).answer
    if lacks := [name for name in answer.columns if name not in stored]:
        raise CorpusError(
            f"{store.path}: the rows of this store have no {lacks[0]!r}, which the recipe reads.\n"
            f"  Give every row a {lacks[0]!r} (it may be empty where the recipe allows it), and build the store for the recipe: "
            f"cloze corpus build FILE --recipe {recipe.name} --out STORE"
        )
    arguments: dict[str, Any] = answer.head_arguments(stored, store.classes)
    arguments |= store.about.get("given", {})  # by `RecordEncoder.given`
    if store.about["classes"] is not None:
        if len(store.classes) < 2:
            raise TaskError(
                f"{', '.join(store.about['files'])}: {counted(len(store.classes), 'distinct label')} in "
                f"{store.about['read']['label']!r}; "
                "expected at least two."
            )
        arguments["classes"] = len(store.classes)
    edits = [edit.part for edit in entry.exercise if class_of("edit", edit.part.name).targets_of_answer]
    return {str(edit.arguments["set"]): arguments for edit in edits}


def _complete_entry(recipe: Recipe, entry: EntrySpec, store: Store) -> EntrySpec:
    """An entry whose objectives have the facts about its store."""
    _require_labels(recipe, entry, store)
    arguments = {**_head_arguments(recipe, entry, store), **_item_arguments(entry, store)}
    graph = {"relations": store.relation_ids} if isinstance(store, TripleStore) and store.relation_ids else {}
    passes = tuple(
        replace(pass_, objectives=tuple(
            _complete_objective(spec, {**arguments.get(str(spec.set), {}), **graph}) for spec in pass_.objectives
        ))
        for pass_ in entry.passes
    )
    return replace(entry, passes=passes)


def _require_labels(recipe: Recipe, entry: EntrySpec, store: Store) -> None:
    """Raise a `CorpusError` if a layer of the text has more labels than the network that is shown them has rows."""
    for edit in entry.exercise:
        layer, shows = edit.part.arguments.get("layer"), class_of("edit", edit.part.name) is Show
        if not shows or layer not in store.labels:
            continue
        names, input_name = store.label_names(str(layer)), str(edit.part.arguments.get("set") or layer)
        for pass_ in entry.passes:
            part = recipe.networks[pass_.network].part
            embedding = None if part is None else part.arguments.get("embedding")
            if not isinstance(embedding, PartSpec) or not isinstance(embedding.arguments.get("inputs"), Mapping):
                continue
            rows = embedding.arguments["inputs"].get(input_name)
            if rows is not None and len(names) >= rows:
                raise CorpusError(
                    f"{store.path}: the annotation layer {layer!r} has {len(names)} labels ({', '.join(names[:8])}"
                    f"{', …' if len(names) > 8 else ''}), and the network has room for {rows - 1}.\n"
                    f"  Give its labels the names of the recipe (`cloze show`, text.annotate), or the network a row for each: "
                    f"--set {_network_path(recipe, pass_.network)}.embedding.{embedding.name}.inputs.{input_name}="
                    f"{len(names) + 1}"
                )


def _network_path(recipe: Recipe, name: str) -> str:
    return "network" if len(recipe.networks) == 1 else f"networks.{name}"


def _complete_objective(spec: ObjectiveSpec, data_facts: Mapping[str, Any]) -> ObjectiveSpec:
    """An objective with those facts that its builder takes as arguments of these names."""
    accepted = parameters(builder_of("objective", spec.part.name))
    arguments = {name: value for name, value in data_facts.items() if name in accepted}
    if (weights := spec.part.arguments.get("class_weights")) is not None:
        arguments["class_weights"] = _class_weights(weights, data_facts, f"{spec.part.path}.class_weights")
    return replace(spec, part=replace(spec.part, arguments={**spec.part.arguments, **arguments})) if arguments else spec


def _class_weights(class_weights: Any, data_facts: Mapping[str, Any], path: str) -> list[float]:
    """One weight for each class of the training text; a `TaskError` if it has no classes, or another number of them."""
    if "label_counts" not in data_facts:
        raise TaskError(f"{path}: the labelled text has no classes. Leave it out.")
    if class_weights == "balanced":
        return balanced(data_facts["label_counts"])
    if len(class_weights) != data_facts["classes"]:
        raise TaskError(
            f"{path}: {len(class_weights)} numbers for {data_facts['classes']} classes. Give one for each, or `balanced`."
        )
    return list(class_weights)
