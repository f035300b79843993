"""CoVe's MT-LSTM: the state dictionary of a two-layer `torch.nn.LSTM` (salesforce/cove, `cove/encoder.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.arguments import complete
from cloze.interop.model import PortableModel
from cloze.interop.pickled import read_state
from cloze.interop.read import Imported
from cloze.interop.released.arrays import Arrays
from cloze.interop.released.words import Split, lost, tokenizer_of
from cloze.interop.vectors.vectors import Vectors
from cloze.reading import Reading

_PART = "lstm_encoder_decoder"


def find(source: Path) -> Mapping[str, Path]:
    """The one .pth or .pt in a folder, or the file itself; a folder with config.json is of another kind."""
    if (source / "config.json").exists():
        return {}
    files = [source] if source.is_file() else sorted([*source.glob("*.pth"), *source.glob("*.pt")])
    weights = [file for file in files if file.suffix in (".pth", ".pt")]
    return {"weights": weights[0]} if len(weights) == 1 else {}


def read(files: Mapping[str, Path], split: Split, words: Vectors | None) -> Imported:
    """The encoder of the translator, whose states stand behind the word vectors: [GloVe; CoVe] (McCann et al., 2017, §4).

    `words` are the vectors that it was trained over, GloVe of 840 billion words for the released one; a word without one is zero.
    """
    path = files["weights"]
    weights = Arrays(path, read_state(path))
    if "weight_ih_l0" not in weights:
        raise CheckpointError(
            f"{path}: neither CoVe's MT-LSTM (weight_ih_l0 …) nor fastai's AWD-LSTM with its itos.pkl; it holds "
            f"{', '.join(weights.left()[:3])} …\n  fastai's weights need their words: put itos.pkl into the same folder."
        )
    if words is None:
        raise CheckpointError(
            f"{path}: CoVe's MT-LSTM holds no words; it was trained over GloVe's vectors of 840 billion words.\n"
            f"  Give them: cloze import {path} --words glove.840B.300d.txt --out DIR"
        )
    rows, read_width = weights.shape("weight_ih_l0", 2)
    cell, layers = rows // 4, 0
    network: dict[str, Tensor] = {}
    while f"weight_ih_l{layers}" in weights:
        for ours, suffix in (("forwards", ""), ("backwards", "_reverse")):
            name, input_width = f"encoder.{ours}.{layers}", read_width if layers == 0 else 2 * cell
            network[f"{name}.input.weight"] = weights.take(f"weight_ih_l{layers}{suffix}", 4 * cell, input_width)
            network[f"{name}.recurrent.weight"] = weights.take(f"weight_hh_l{layers}{suffix}", 4 * cell, cell)
            network[f"{name}.bias"] = weights.take(f"bias_ih_l{layers}{suffix}", 4 * cell)
            network[f"{name}.recurrent.bias"] = weights.take(f"bias_hh_l{layers}{suffix}", 4 * cell)
        layers += 1
    if left := weights.left():
        raise CheckpointError(f"{path}: also holds {', '.join(left[:4])}; expected the weights of one bidirectional LSTM alone.")
    if words.width != read_width:
        raise CheckpointError(f"{words.place}: vectors of width {words.width}; {path} reads vectors of width {read_width}.")
    tokenizer, places = tokenizer_of(words.words, split=split, spelled={})
    table = np.zeros((len(places), read_width), np.float32)
    mask = np.array(places) >= 0
    mask[: len(tokenizer.literals)] = False  # roles are zero, as in training
    table[mask] = words.matrix[np.array(places)[mask]]
    network["embeddings.tokens.weight"] = torch.from_numpy(table)
    arguments = {
        "width": 2 * cell, "layers": layers, "embedding_width": read_width, "decoder": False, "words": True, "vectors": "glove",
    }  # fmt: skip
    model = PortableModel(complete(arguments, _PART), "open", network, part=_PART)
    return Imported(
        folder=path.parent, architecture=None, model=model, tokenizer=tokenizer, reading=Reading("{A}", None, "last"),
        remarks=tuple(lost(places, words.words, split)), trained_by="cove", encoder_alone=True,
    )  # fmt: skip
