"""Skip-thought's encoders: `uni_skip.npz` or `bi_skip.npz`, their tables and `dictionary.txt` (ryankiros/skip-thoughts)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.arguments import complete
from cloze.interop.model import PortableModel
from cloze.interop.read import Imported
from cloze.interop.released.arrays import Arrays, read_npy, read_npz
from cloze.interop.released.words import Split, lines_of, lost, lower_case, tokenizer_of
from cloze.interop.vectors.vectors import Vectors
from cloze.reading import Reading

_PART = "gru"
_SPELLED = {"[UNK]": ("UNK",), "[EOS]": ("<eos>",)}
_TABLES = {False: "utable.npy", True: "btable.npy"}  # by whether both directions read


def find(source: Path) -> Mapping[str, Path]:
    """The archive of weights; a folder with both has to be narrowed down by the user."""
    files = [source] if source.is_file() else sorted(source.glob("*_skip.npz"))
    archives = [file for file in files if file.suffix == ".npz"]
    if len(archives) > 1:
        raise CheckpointError(
            f"{source}: {len(archives)} models. Import them one by one: cloze import {archives[0]} --out DIR\n"
            "  combine-skip is the two vectors side by side, each of length 1: cloze embed DIR --pooling summary --normalise"
        )
    return {"weights": archives[0]} if archives else {}


def read(files: Mapping[str, Path], split: Split, words: Vectors | None) -> Imported:
    """The encoder, with the table of all words, those among them that were mapped from word2vec (Kiros et al., 2015, §2.2).

    Differs: `read` does not need the pickled options, since the shapes tell the sizes; the decoders, which the released program
    never reads either, are left out.
    """
    path = files["weights"]
    if words is not None:
        raise CheckpointError(f"{path}: its words are in {_TABLES[False]}; import it first, then add words to the result.")
    weights = read_npz(path)
    both = "encoder_r_W" in weights
    read_width, twice = weights.shape("encoder_W", 2)
    cell = twice // 2
    network: dict[str, Tensor] = {}
    for layer, lead in enumerate(("encoder", "encoder_r") if both else ("encoder",)):
        network |= _layer(weights, lead, f"layers.{layer}", read_width, cell)
    table_file = path.with_name(_TABLES[both])
    table, listed = read_npy(table_file), lines_of(path.with_name("dictionary.txt"))
    if table.shape != (len(listed), read_width):
        raise CheckpointError(
            f"{table_file}: {table.shape[0]:,} rows of {table.shape[1]}; dictionary.txt has {len(listed):,} words, and "
            f"{path.name} reads {read_width} numbers for each.\n  The files belong to different models: copy all of them again."
        )
    lower = lower_case([word for word in listed if word != "UNK"])
    tokenizer, places = tokenizer_of(listed, split=split, spelled=_SPELLED, lower=lower)
    rows = np.array(places, np.int64)
    vectors = np.array(table[np.maximum(rows, 0)], np.float32)
    vectors[rows < 0] = 0.0
    if not np.isfinite(vectors).all():
        raise CheckpointError(f"{table_file}: holds numbers that are not finite. Copy the file again.")
    network["embeddings.tokens.weight"] = torch.from_numpy(vectors)
    arguments = {"width": cell * (2 if both else 1), "embedding_width": read_width, "both_directions": both}
    model = PortableModel(complete(arguments, _PART), "open" if both else "left_to_right", network, part=_PART)
    return Imported(
        folder=path.parent, architecture=None, model=model, tokenizer=tokenizer, reading=Reading("{A}", None, "last"),
        remarks=tuple(lost(places, listed, split)), trained_by="skip-thought",
    )  # fmt: skip


def _layer(weights: Arrays, lead: str, ours: str, read_width: int, cell: int) -> dict[str, Tensor]:
    """One direction. Their gates are r, u along the last axis and the candidate apart; ours are r, u, n along the first."""
    maps = [weights.take(f"{lead}_W", read_width, 2 * cell), weights.take(f"{lead}_Wx", read_width, cell)]
    recurrent = [weights.take(f"{lead}_U", cell, 2 * cell), weights.take(f"{lead}_Ux", cell, cell)]
    return {
        f"{ours}.input.weight": torch.cat(maps, dim=1).t().contiguous(),
        f"{ours}.input.bias": torch.cat([weights.take(f"{lead}_b", 2 * cell), weights.take(f"{lead}_bx", cell)]),
        f"{ours}.recurrent.weight": torch.cat(recurrent, dim=1).t().contiguous(),
    }
