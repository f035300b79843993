"""The encoder of a translator, without its decoder: CoVe."""

from __future__ import annotations

from dataclasses import replace

from cloze.errors import CheckpointError
from cloze.interop import Imported

PART = "lstm_encoder_decoder"


def encoder_only(imported: Imported, *, words: bool = True) -> Imported:
    """The encoder of a network `lstm_encoder_decoder` as a network of its own, for any classifier.

    With `words`, its states are [GloVe; CoVe]: the word's vector, then the state (McCann et al., 2017, §4). Raises
    `CheckpointError` for another network and for one without a decoder.
    """
    model = imported.model
    if model.part != PART or not model.arguments["decoder"]:
        description = model.part if model.part != PART else f"{PART} without a decoder"
        raise CheckpointError(f"{imported.folder}: {description}; expected {PART} with a decoder, as the recipe cove trains it.")
    network = {name: tensor for name, tensor in model.network.items() if not name.startswith("decoder.")}
    arguments = {**model.arguments, "decoder": False, "words": words}
    return replace(imported, model=replace(model.plain, network=network, arguments=arguments, heads={}))
