"""peft's folders of soft prompts (PROMPT_TUNING), written and read: one tensor, `prompt_embeddings` (K, E)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cloze.assembly.parts import class_of
from cloze.errors import CheckpointError
from cloze.interop import Imported, Model

NAME, TYPE = "prompt_embeddings", "PROMPT_TUNING"
_OURS = "outside.0.rows"


def prompt_files(model: Model) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """peft's tensors, and what its configuration says of them."""
    rows = {**model.network, **model.changed}[_OURS]
    alone = "CAUSAL_LM" if model.order == "left_to_right" else "FEATURE_EXTRACTION"
    kind = "SEQ_2_SEQ_LM" if class_of("network", model.part).writes else alone
    return {NAME: rows}, {
        "peft_type": TYPE, "task_type": kind, "num_virtual_tokens": len(rows), "token_dim": rows.shape[1],
        "num_transformer_submodules": 1, "num_layers": model.arguments["layers"], "num_attention_heads": model.arguments["heads"],
        "prompt_tuning_init": "RANDOM",
    }  # fmt: skip


def read_prompt(
    place: Path, given: Imported, tensors: dict[str, Tensor], config: Mapping[str, Any]
) -> tuple[tuple[str, Mapping[str, Any]], dict[str, Tensor]]:
    """The change and its tensors under our names; what is used is taken out of `tensors`.

    A `CheckpointError` for a prompt of the decoder, which cloze does not have, and for a misshapen one.
    """
    rows, table = tensors.pop(NAME, None), given.model.network.get("embeddings.tokens.weight")
    stacks = config.get("num_transformer_submodules")
    if stacks not in (1, None) or rows is None or table is None or rows.shape[1] != table.shape[1]:
        raise CheckpointError(
            f"{place}: cloze reads one {NAME} in front of the text, (tokens, width of the embeddings); "
            f"here it is {'missing' if rows is None else tuple(rows.shape)}, for {stacks} stacks of layers."
        )
    return ("prompt", {"tokens": len(rows), "start": "random"}), {_OURS: rows}
