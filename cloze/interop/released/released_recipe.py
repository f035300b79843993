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
    recipe["text"] = text_of(tokenizer) | {key: value for key, value in recipe["text"].items() if key == "annotate"}
    recipe["reading"] = {**recipe["reading"], "single": reading.single, "summary": reading.summary}
    part, arguments = imported.model.part, imported.model.arguments
    networks = recipe.get("networks") or {"": recipe["network"]}
    sizes = {key: arguments[key] for key in ("width", "embedding_width", "layers") if key in arguments}
    for role, network in networks.items():
        network_arguments = network[part]
        if part == "lstm_encoder_decoder" or (role and role != recipe.get("export")):
            network_arguments.update(sizes)  # decoders are not among the files
        else:
            network_arguments.update(arguments)
    recipe["order"] = imported.model.order
    return recipe
