"""What tokenizer_config.json of a folder that cloze did not write says about rows: segments and length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloze.interop.architecture import Architecture
from cloze.interop.files import read_json

SETTINGS = "tokenizer_config.json"
#: Classes of transformers whose tokenizers give no token_type_ids; the class of a file that names none is the architecture's.
_WITHOUT_SEGMENTS = ("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer", "BigBirdTokenizer")


def gives_segments(folder: Path, architecture: Architecture) -> bool:
    """Whether transformers' tokenizer of this folder gives segments; without them, the network reads segment 0 everywhere."""
    settings = tokenizer_settings(folder)
    names = settings.get("model_input_names")
    if isinstance(names, list):
        return "token_type_ids" in names
    return str(settings.get("tokenizer_class") or architecture.tokenizer_class).removesuffix("Fast") not in _WITHOUT_SEGMENTS


def longest_row(folder: Path) -> int | None:
    """The tokens to which transformers cuts a row; None if the folder gives no limit."""
    return as_length(tokenizer_settings(folder).get("model_max_length"))


def as_length(value: Any) -> int | None:
    """A number of tokens in a file of settings; None for none, and for the huge number that stands for no limit."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else None


def tokenizer_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json; empty if there is none."""
    path = folder / SETTINGS
    return read_json(path, "the tokenizer's settings") if path.is_file() else {}
