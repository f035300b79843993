"""ELMo's weights as its authors and AllenNLP publish them: `*options.json` and `*weights.hdf5` (allenai/bilm-tf)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.arguments import complete
from cloze.interop.files import read_json
from cloze.interop.model import PortableModel
from cloze.interop.read import Imported
from cloze.interop.released.arrays import Arrays, read_hdf5
from cloze.interop.released.words import Split, tokenizer_of
from cloze.interop.vectors.vectors import Vectors
from cloze.reading import Reading

_PART = "bilstm"
_BYTES = 261  # rows of the table in the file: bytes and marks; ours has one more, for padding
_CELLS = "RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"


def find(source: Path) -> Mapping[str, Path]:
    """`weights` and `options` in a folder, or next to a file of weights."""
    folder = source if source.is_dir() else source.parent
    weights = sorted(folder.glob("*weights.hdf5")) if source.is_dir() else [source] if source.suffix == ".hdf5" else []
    if not weights:
        return {}
    if len(weights) > 1:
        raise CheckpointError(f"{source}: several files of weights; name one: cloze import {weights[0]} --out DIR")
    options = weights[0].with_name(weights[0].name.replace("weights.hdf5", "options.json"))
    return {"weights": weights[0], "options": options if options != weights[0] and options.exists() else folder / "options.json"}


def read(files: Mapping[str, Path], split: Split, words: Vectors | None) -> Imported:
    """The bidirectional language model, without its softmax, which the authors never export.

    Words need no vocabulary: each is read by its characters. TensorFlow adds 1 to the bias of the forget gate while it runs; here
    it is in the bias.
    """
    if words is not None:
        raise CheckpointError(f"{files['weights']}: ELMo reads every word by its characters; leave --words out.")
    options = read_json(files["options"], "ELMo's options, the file that belongs to the weights")
    arguments = _arguments(files["options"], options)
    weights = read_hdf5(files["weights"])
    network = {**_characters(weights, arguments), **_layers(weights, arguments)}
    remarks = ["Every word is read by its characters, so the vocabulary is empty; the softmax is not in such files."]
    if left := weights.left():
        remarks.append(f"used by no part of cloze: {', '.join(left[:4])}.")
    tokenizer, _ = tokenizer_of([], split=split, spelled={})
    model = PortableModel(complete(arguments, _PART), "open", network, part=_PART)
    return Imported(
        folder=files["weights"].parent, architecture=None, model=model, tokenizer=tokenizer,
        reading=Reading("[BOS] {A} [EOS]", None, "last"), remarks=tuple(remarks), trained_by="elmo",
    )  # fmt: skip


def _arguments(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of our network that options.json states."""
    if "char_cnn" not in options:
        raise CheckpointError(f"{path}: no char_cnn: this model reads a table of words; expected one of characters.")
    try:
        cnn, lstm = options["char_cnn"], options["lstm"]
        filters = [[int(span), int(count)] for span, count in cnn["filters"]]
        arguments: dict[str, Any] = {
            "layers": int(lstm["n_layers"]), "width": 2 * int(lstm["projection_dim"]), "inner": int(lstm["dim"]),
            "skip": bool(lstm["use_skip_connections"]),
            "cell_clip": _clip(lstm.get("cell_clip")), "projection_clip": _clip(lstm.get("proj_clip")),
            "forget_bias": 1.0, "dropout": float(options.get("dropout", 0.1)), "reuse": 1,
            "embedding": {"char_cnn": {
                "embedding_width": int(cnn["embedding"]["dim"]), "filters": filters,
                "highways": int(cnn.get("n_highway") or 0), "activation": str(cnn["activation"]),
                "per_word": int(cnn["max_characters_per_token"]),
            }},
        }  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: not ELMo's options ({error!r}); expected char_cnn and lstm. Copy it again.") from None
    if cnn["activation"] not in ("relu", "tanh"):
        raise CheckpointError(f"{path}: activation {cnn['activation']!r}; expected relu or tanh.")
    sizes = [arguments["layers"], arguments["width"], arguments["inner"], *(number for pair in filters for number in pair)]
    if min(sizes) < 1 or arguments["layers"] > 64 or max(sizes) > 1 << 20 or int(cnn.get("n_characters", 262)) not in (261, 262):
        raise CheckpointError(f"{path}: sizes that no such model has; expected those of ELMo. Copy the file again.")
    return arguments


def _clip(value: Any) -> float | None:
    return None if value is None else float(value)


def _characters(weights: Arrays, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """The table of characters, convolutions, highways and the map to the width of a direction."""
    cnn, width = arguments["embedding"]["char_cnn"], arguments["width"] // 2
    dim, total = cnn["embedding_width"], sum(count for _, count in cnn["filters"])
    part = "embeddings.characters.part"
    table = weights.take("char_embed", _BYTES, dim)
    tensors = {f"{part}.table.weight": torch.cat([torch.zeros(1, dim), table])}
    for number, (span, count) in enumerate(cnn["filters"]):
        kernel = weights.take(f"CNN/W_cnn_{number}", 1, span, dim, count)
        tensors[f"{part}.filters.{number}.weight"] = kernel[0].permute(2, 1, 0).contiguous()
        tensors[f"{part}.filters.{number}.bias"] = weights.take(f"CNN/b_cnn_{number}", count)
    for number in range(cnn["highways"]):
        for ours, upstream in (("gate", "carry"), ("change", "transform")):
            mapped = weights.take(f"CNN_high_{number}/W_{upstream}", total, total)
            tensors[f"{part}.highways.{number}.{ours}.weight"] = mapped.t().contiguous()
            tensors[f"{part}.highways.{number}.{ours}.bias"] = weights.take(f"CNN_high_{number}/b_{upstream}", total)
    if total != width:
        tensors["embeddings.characters.project.weight"] = weights.take("CNN_proj/W_proj", total, width).t().contiguous()
        tensors["embeddings.characters.project.bias"] = weights.take("CNN_proj/b_proj", width)
    return tensors


def _layers(weights: Arrays, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """The LSTMs of both directions."""
    width, cell, tensors = arguments["width"] // 2, arguments["inner"], {}
    for way, ours in enumerate(("forwards", "backwards")):
        for layer in range(arguments["layers"]):
            lead, name = _CELLS.format(way=way, layer=layer), f"layers.{layer}.{ours}"
            maps = _gates(weights.take(f"{lead}W_0", 2 * width, 4 * cell)).t()
            bias = _gates(weights.take(f"{lead}B", 4 * cell)).clone()
            bias[cell : 2 * cell] += 1.0
            tensors[f"{name}.input.weight"] = maps[:, :width].contiguous()
            tensors[f"{name}.recurrent.weight"] = maps[:, width:].contiguous()
            tensors[f"{name}.bias"] = bias
            if cell != width:
                tensors[f"{name}.projection.weight"] = weights.take(f"{lead}W_P_0", cell, width).t().contiguous()
    return tensors


def _gates(gates: Tensor) -> Tensor:
    """TensorFlow's gates i, g, f, o along the last axis as our i, f, g, o."""
    i, g, f, o = gates.chunk(4, dim=-1)
    return torch.cat([i, f, g, o], dim=-1)
