"""What sentence-transformers adds to a folder, both ways: modules.json, the pooling, a dense map, the norm, and the length.

The head `embedding` of a model is what its modules compute (`objectives/distances/embedding.py`). A model without one is written
with the mean over all tokens, as `cloze embed` takes it (Reimers and Gurevych, Sentence-BERT, 2019, §3: the mean is the default).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.files import parse_modules, read_json, read_tensors, weights_file, write_json, write_tensors
from cloze.interop.model import PortableHead, PortableModel
from cloze.interop.prompts import MODULES, PROMPTS, write_prompts
from cloze.interop.tokenizer_settings import SETTINGS, as_length, longest_row, tokenizer_settings
from cloze.reading import Reading

if TYPE_CHECKING:
    from cloze.interop.choice import ArchitectureChoice

NAME = PART = "embedding"  # of the head, and of the objective
_POOLING, _DENSE, _NORM = "1_Pooling", "2_Dense", "3_Normalize"
_LENGTH = "sentence_bert_config.json"
#: Where sentence-transformers wrote it before 2021, by the network.
_LENGTHS = (_LENGTH, *(
    f"sentence_{name}_config.json" for name in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
))  # fmt: skip
_FILES = (f"{_DENSE}/config.json", f"{_DENSE}/model.safetensors")  # that a later model in the folder may not have
_MODES = {
    "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens", "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}  # fmt: skip
_SUMMARY = {"first": "cls", "last": "lasttoken"}
_PLAIN = {"reading": "mean", "normalise": False}  # what a model without a head is written with
_ACTIVATIONS = {"Tanh": "tanh", "Identity": None}
_TORCH = {"tanh": "torch.nn.modules.activation.Tanh", None: "torch.nn.modules.linear.Identity"}


def gives_sentences(model: PortableModel, choice: ArchitectureChoice | list[str], reading: Reading) -> bool:
    """Whether transformers' base class, given only tokens, returns the states that `cloze embed` pools, and modules of
    sentence-transformers compute the rest of the head."""
    head = sentence_head(model)
    return (
        not isinstance(choice, list)
        and (head is None or head.state.keys() <= {"head.weight", "head.bias"})
        and model.network_type.writes is None
        and choice.architecture.until is None
        and not model.input_edits
        and not model.flat.get("embedding.inputs")
        and (reading.summary in _SUMMARY or head is None or head.argument("reading") != "summary")
    )


def sentence_head(model: PortableModel) -> PortableHead | None:
    """The head whose vectors are those of the model's texts; None if it has none."""
    head = model.heads.get(NAME)
    return head if head is not None and head.part == PART else None


def write_sentences(stage: Path, model: PortableModel, reading: Reading) -> None:
    """Write modules.json and what it lists: the network, the pooling, and the map and the norm of the head `embedding`."""
    head = sentence_head(model)
    settings = {name: None if head is None else head.argument(name) for name in ("reading", "activation", "normalise", "length")}
    mode = _SUMMARY[reading.summary] if settings["reading"] == "summary" else settings["reading"] or "mean"
    modules = [("", "Transformer"), (_POOLING, "Pooling")]
    width = int(model.arguments["width"])
    write_json(stage / _POOLING / "config.json", {
        "word_embedding_dimension": width, **{key: name == mode for name, key in _MODES.items()}
    })  # fmt: skip
    if head is not None and "head.weight" in head.state:
        weight = head.state["head.weight"]
        modules.append((_DENSE, "Dense"))
        write_json(stage / _DENSE / "config.json", {
            "in_features": weight.shape[1], "out_features": weight.shape[0], "bias": "head.bias" in head.state,
            "activation_function": _TORCH[settings["activation"]],
        })  # fmt: skip
        tensors = {f"linear.{name.removeprefix('head.')}": tensor for name, tensor in head.state.items()}
        write_tensors(stage / _DENSE / "model.safetensors", tensors)
    if settings["normalise"]:
        modules.append((_NORM, "Normalize"))
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(modules)
    ]
    write_json(stage / MODULES, listed)
    length = settings["length"] or model.flat.get("positions.max_length")
    write_json(stage / _LENGTH, {"max_seq_length": length, "do_lower_case": False})
    if model.prompts.similarity is not None:
        write_prompts(stage, model.prompts)


def drop_sentences(folder: Path, stays: bool, *, prompts: bool) -> None:
    """Remove what modules.json of an earlier model in the folder listed and that of this one does not, and its prompts unless
    this one has `prompts`."""
    if not prompts:
        (folder / PROMPTS).unlink(missing_ok=True)
    listed = (folder / MODULES).read_text(encoding="utf-8") if stays and (folder / MODULES).exists() else ""
    for name in _FILES:
        if name.partition("/")[0] not in listed:
            (folder / name).unlink(missing_ok=True)


def read_sentences(folder: Path, arguments: Mapping[str, Any], reading: Reading) -> PortableHead | None:
    """The head of the modules that a folder of sentence-transformers lists, for a network of these flat arguments.

    None for any other folder, and for the mean over all tokens that the network reads: `cloze embed` takes it without a head.
    Errors: a module, a pooling or an activation that cloze does not compute is a `CheckpointError`.
    """
    if not (folder / MODULES).is_file():
        return None
    listed = parse_modules(folder / MODULES)
    names = [kind for kind, _ in listed]
    expected = [name for name in ("Transformer", "Pooling", "Dense", "Normalize") if name in names]
    if names != expected or names[:2] != ["Transformer", "Pooling"] or listed[0][1]:
        raise _refused(folder / MODULES, f"the modules {', '.join(names)}", "Transformer, Pooling, Dense, Normalize")
    places, width = dict(listed), int(arguments["width"])
    settings: dict[str, Any] = {
        "reading": _pooling(folder / places["Pooling"] / "config.json", width, reading), "normalise": "Normalize" in places,
    }  # fmt: skip
    state: Mapping[str, Tensor] = {}
    if "Dense" in places:
        dense_settings, state = _dense(folder / places["Dense"], width)
        settings |= dense_settings
    _require_capitals(folder)
    _require_uncut(folder)
    length, longest = length_of_texts(folder), arguments.get("positions.max_length")
    if settings == _PLAIN and (length is None or (longest is not None and length >= longest)):
        return None
    return PortableHead(PART, {**settings, **({} if length is None else {"length": length})}, state)


def _pooling(path: Path, width: int, reading: Reading) -> str:
    """Which reading of the objective `embedding` a pooling is."""
    config = read_json(path, "the pooling that modules.json lists")
    mode = config.get("pooling_mode")
    modes = [name for name, key in _MODES.items() if config.get(key)] if mode is None else mode
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    size = config.get("word_embedding_dimension", config.get("embedding_dimension", width))
    if size != width:
        raise CheckpointError(f"{path}: pools vectors of {size!r} numbers, the network gives {width}. Copy the folder again.")
    if config.get("include_prompt") is False:
        raise _refused(path, "a pooling that leaves out the prompt (include_prompt)", "the pooling of whole texts")
    if modes in (["mean"], ["max"]):
        return str(modes[0])
    if modes == [_SUMMARY[reading.summary]]:
        return "summary"
    raise _refused(path, f"the pooling {', '.join(map(str, modes))}", f"mean, max or {_SUMMARY[reading.summary]}")


def _dense(folder: Path, width: int) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """The arguments and the parameters of a dense map."""
    config = read_json(folder / "config.json", "the dense map that modules.json lists")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    inputs, outputs, bias = (config.get(key, usual) for key, usual in (("in_features", 0), ("out_features", 0), ("bias", True)))
    further = [key for key in ("module_input_name", "module_output_name") if config.get(key, "sentence_embedding") not in (
        "sentence_embedding", None)]  # fmt: skip
    if activation not in _ACTIVATIONS or config.get("use_residual") or further:
        problem = f"a dense map with {activation}, a residual or other inputs"
        raise _refused(folder / "config.json", problem, "Tanh or Identity alone")
    tensors = read_tensors(weights_file(folder))
    shapes = {"linear.weight": (outputs, inputs), **({"linear.bias": (outputs,)} if bias else {})}
    if inputs != width or {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
        raise CheckpointError(f"{folder}: a map from {inputs!r} to {outputs!r} numbers whose weights do not fit. Copy it again.")
    state = {f"head.{name.removeprefix('linear.')}": tensor for name, tensor in tensors.items()}
    return {"project": outputs, "activation": _ACTIVATIONS[activation], "bias": bool(bias)}, state


def length_of_texts(folder: Path) -> int | None:
    """How many tokens of a text are read; None: as many as the network can. In a folder of
    sentence-transformers, its `max_seq_length` takes precedence over the tokenizer's limit."""
    length = as_length(_length_file(folder)[1].get("max_seq_length")) if (folder / MODULES).is_file() else None
    return length or longest_row(folder)


def _length_file(folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """The file about the length of texts, and what it says; nothing if there is none."""
    path = next((folder / name for name in _LENGTHS if (folder / name).is_file()), folder / _LENGTH)
    return path, read_json(path, "the length of texts") if path.is_file() else {}


def _require_capitals(folder: Path) -> None:
    """Refuse a folder that lower-cases texts in front of a tokenizer that does not."""
    length_path, settings = _length_file(folder)
    if settings.get("do_lower_case") is True:
        path = folder / "tokenizer.json"
        rules = json.dumps(read_json(path, "the tokenizer").get("normalizer")) if path.is_file() else "Lowercase"
        if '"lowercase": true' not in rules and "Lowercase" not in rules:
            raise _refused(length_path, "every text is lower-cased for a tokenizer that keeps capitals", "texts as they are")


def _require_uncut(folder: Path) -> None:
    """Refuse a folder that truncates vectors, or texts on the left."""
    path = folder / PROMPTS
    dimension = read_json(path, "the prompts of the model").get("truncate_dim") if path.is_file() else None
    if dimension is not None:
        raise _refused(path, f"vectors are cut to {dimension} numbers (truncate_dim; null keeps them whole)", "whole vectors")
    if tokenizer_settings(folder).get("truncation_side") == "left":
        problem = "long texts are cut on the left (truncation_side)"
        raise _refused(folder / SETTINGS, problem, "vectors of texts that are cut on the right")


def _refused(path: Path, problem: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: {problem}; cloze computes {expected}.\n"
        f"  To import the network without the vectors of sentences, copy the folder without {MODULES}."
    )
