"""peft's folders of soft prompts (PROMPT_TUNING) and of prefixes (PREFIX_TUNING), written and read.

Each holds one tensor, `prompt_embeddings`: (K, E) of a prompt; of a prefix (K, N·2·D), in which a layer's keys stand before its
values, head by head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop import Imported, PortableModel
from cloze.recipe.parts import class_of

NAME = "prompt_embeddings"
_ROWS = "outside.0.rows"
Read = tuple[tuple[str, Mapping[str, Any]], dict[str, Tensor]]
Written = tuple[dict[str, Tensor], dict[str, Any]]


def _front(number: int) -> str:
    """The keys and values in front of those of a layer."""
    return f"layers.{number}.around.attention.rows"


def _said(model: PortableModel, rows: int) -> dict[str, Any]:
    """What peft's configuration says of rows in front of a text."""
    alone = "CAUSAL_LM" if model.order == "left_to_right" else "FEATURE_EXTRACTION"
    return {
        "task_type": "SEQ_2_SEQ_LM" if class_of("network", model.part).writes else alone, "num_virtual_tokens": rows,
        "num_transformer_submodules": 1, "num_layers": model.arguments["layers"],
        "num_attention_heads": model.arguments["heads"],
    }  # fmt: skip


def _write_prompt(model: PortableModel) -> Written:
    """The tensor of a prompt, and what peft's configuration says of it."""
    rows = {**model.network, **model.changed}[_ROWS]
    settings = {"peft_type": "PROMPT_TUNING", "token_dim": rows.shape[1], "prompt_tuning_init": "RANDOM"}
    return {NAME: rows}, {**_said(model, len(rows)), **settings}


def _read_prompt(path: Path, imported: Imported, tensors: dict[str, Tensor], config: Mapping[str, Any]) -> Read:
    """The change and its tensor under our name; what is used is taken out of `tensors`.

    A `CheckpointError` for a prompt of the decoder, which cloze does not have, and for a misshapen one.
    """
    rows, table = tensors.pop(NAME, None), imported.model.network.get("embeddings.tokens.weight")
    stacks = config.get("num_transformer_submodules")
    if stacks not in (1, None) or rows is None or table is None or rows.shape[1] != table.shape[1]:
        raise CheckpointError(
            f"{path}: cloze reads one {NAME} in front of the text, (tokens, width of the embeddings); "
            f"here it is {'missing' if rows is None else tuple(rows.shape)}, for {stacks} stacks of layers."
        )
    return ("prompt", {"tokens": len(rows), "start": "random"}), {_ROWS: rows}


def _write_prefix(model: PortableModel) -> Written:
    """The tensor of a prefix, and what peft's configuration says of it; a `CheckpointError` for an encoder."""
    if model.order != "left_to_right":
        raise CheckpointError(
            f"peft puts a prefix in front of networks that read from left to right, and this one reads {model.order}.\n"
            "  For cloze: --to change."
        )
    state = {**model.network, **model.changed}
    layers = [state[_front(number)].flatten(1) for number in range(model.arguments["layers"])]
    width = layers[0].shape[1] // 2
    settings = {"peft_type": "PREFIX_TUNING", "token_dim": width, "encoder_hidden_size": width, "prefix_projection": False}
    return {NAME: torch.cat(layers, dim=1)}, {**_said(model, len(layers[0])), **settings}


def _read_prefix(path: Path, imported: Imported, tensors: dict[str, Tensor], config: Mapping[str, Any]) -> Read:
    """The change and its tensors under our names; a `CheckpointError` for another shape."""
    rows, arguments = tensors.pop(NAME, None), imported.model.arguments
    row_width = 2 * arguments.get("layers", 0) * arguments.get("width", 0)
    if rows is None or rows.shape[1] != row_width:
        raise CheckpointError(
            f"{path}: cloze reads one {NAME}, (tokens, 2 · layers · width), here (…, {row_width}); "
            f"it is {'missing' if rows is None else tuple(rows.shape)}."
        )
    shape = len(rows), arguments["layers"], 2, arguments.get("heads", 1), -1
    layers = rows.view(shape).unbind(1)
    return ("prefix", {"tokens": len(rows)}), {_front(number): layer.contiguous() for number, layer in enumerate(layers)}


class Method(NamedTuple):
    """A method of peft that puts rows in front of a text: our change, and how its files are written and read."""

    change: str
    write: Callable[[PortableModel], Written]
    read: Callable[[Path, Imported, dict[str, Tensor], Mapping[str, Any]], Read]


#: By peft's name of the method.
METHODS: Mapping[str, Method] = {
    "PROMPT_TUNING": Method("prompt", _write_prompt, _read_prompt),
    "PREFIX_TUNING": Method("prefix", _write_prefix, _read_prefix),
}  # fmt: skip
