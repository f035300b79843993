"""A recipe for released weights: the named recipe of the system, with the network and the vocabulary that were read."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from cloze.interop.read import Imported
from cloze.interop.recipe import text_of


def released_recipe(imported: Imported, base: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`base`, the named recipe `imported.trained_by` as plain data, with sizes, vocabulary and reading of the imported model."""
    recipe = copy.deepcopy(dict(base))
    tokenizer, reading = imported.tokenizer, imported.reading
    recipe["name"] = name
    recipe["notes"] = (
        f"Read from the files that the authors released: network and vocabulary. Everything else is that of the recipe "
        f"{base['name']}, because such files do not say how they were trained.\n"
    )
    recipe["text"] = text_of(tokenizer) | {key: value for key, value in recipe.get("text", {}).items() if key == "annotate"}
    recipe["reading"] = {
        **({} if reading.pair is None else {"pair": reading.pair}), **recipe.get("reading", {}), "single": reading.single,
        "summary": reading.summary,
    }
    part, arguments = imported.model.part, imported.model.arguments
    sizes = {key: arguments[key] for key in ("width", "embedding_width", "layers") if key in arguments}
    stages = recipe.get("stages", {})
    for tree in stages.values() if stages else [recipe]:
        for role, network in (tree.get("networks") or {"": tree["network"]}).items():
            if network.get("from") in stages:
                continue
            if imported.encoder_alone or (role and role != recipe.get("export")):
                network[part].update(sizes)  # decoders are not among the files
                continue
            network.pop("from", None)  # of a recipe that starts with a checkpoint
            network.setdefault(part, {}).update(arguments)
            if imported.model.changes:
                network["change"] = [{change: dict(options)} for change, options in imported.model.changes]
    recipe["order"] = imported.model.order
    return recipe
