"""The three files that let sentence-transformers open a folder: the mean over all tokens, as `cloze embed` takes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloze.interop.files import write_json
from cloze.interop.model import Model

if TYPE_CHECKING:
    from cloze.interop.choice import Choice

_POOLING = "1_Pooling"


def gives_sentences(model: Model, choice: Choice | list[str]) -> bool:
    """Whether transformers' base class, given only tokens, returns the states that `cloze embed` averages."""
    return (
        not isinstance(choice, list)
        and model.network_type.writes is None
        and choice.architecture.until is None
        and not model.input_edits
        and not model.flat.get("embedding.inputs")
    )


def write_sentences(stage: Path, model: Model) -> None:
    """Write modules.json, the pooling and the length (Reimers & Gurevych, Sentence-BERT, 2019, §3: the mean is the default)."""
    modules = [("", "Transformer"), (_POOLING, "Pooling")]
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(modules)
    ]
    write_json(stage / "modules.json", listed)
    write_json(stage / _POOLING / "config.json", {
        "word_embedding_dimension": model.arguments["width"],
        "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    })  # fmt: skip
    length = model.flat.get("positions.max_length")
    write_json(stage / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
