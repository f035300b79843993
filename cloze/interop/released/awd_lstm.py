"""fastai's AWD-LSTM, the weights that ULMFiT starts from: a state dictionary and a pickled list of words (`itos`).

Both generations are read: `fwd_wt103.h5` with `itos_wt103.pkl` of fastai 0.7, which torch saved in spite of its ending, and
`lstm_fwd.pth` with `lstm_fwd_itos.pkl` of fastai 1 and 2 (fastai1, `text/models/awd_lstm.py`, `text/learner.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.arguments import complete
from cloze.interop.model import PortableHead, PortableModel
from cloze.interop.pickled import read_state
from cloze.interop.read import Imported
from cloze.interop.released.arrays import Arrays
from cloze.interop.released.pickles import read_words
from cloze.interop.released.words import Split, lost, lower_case, tokenizer_of
from cloze.interop.vectors.vectors import Vectors
from cloze.reading import Reading

_PART, _HEAD = "lstm", "token_prediction"
_SPELLED = {
    "[PAD]": ("xxpad", "_pad_"), "[UNK]": ("xxunk", "_unk_"), "[BOS]": ("xxbos", "xbos"), "[EOS]": ("xxeos", "<eos>"),
}  # fmt: skip
_RAW = ("weight_hh_l0_raw", "module.weight_hh_l0_raw", "module.weight_hh_l0", "weight_hh_l0")  # the first that is there
_COPIES = ("0.encoder_dp.emb.weight", "0.encoder_with_dropout.embed.weight", "encoder_dp.emb.weight")
# of a language model that is trained further (fastai1, awd_lstm_lm_config)
_DROPOUT = {"output": 0.1, "hidden": 0.15, "weight": 0.2, "input": 0.25, "word": 0.02}


def find(source: Path) -> Mapping[str, Path]:
    """`weights` and `words`: the one pickled list in the folder, and the weights next to it."""
    folder = source if source.is_dir() else source.parent
    words = sorted(folder.glob("*itos*.pkl"))
    weights = [source] if source.is_file() else sorted([*folder.glob("*.pth"), *folder.glob("*.h5")])
    weights = [file for file in weights if file.suffix in (".pth", ".h5", ".pt")]
    if not words or not weights:
        return {}
    if len(weights) > 1 or len(words) > 1:
        example = weights[0] if len(weights) > 1 else words[0]
        raise CheckpointError(
            f"{source}: several models, {example.name} among them; put one .pth and its itos.pkl into a folder."
        )
    return {"weights": weights[0], "words": words[0]}


def read(files: Mapping[str, Path], split: Split, words: Vectors | None) -> Imported:
    """The language model with its head, or the encoder alone if there is no decoder in the file (`save_encoder`).

    Roles that the words lack begin at the mean of all rows, as new words do in fastai (`convert_weights`).
    """
    path, listed = files["weights"], read_words(files["words"])
    if words is not None:
        raise CheckpointError(f"{path}: its words are in {files['words'].name}; leave --words out.")
    if "bwd" in path.stem:
        raise CheckpointError(f"{path}: reads texts from their end; cloze's lstm reads from left to right. Take the fwd file.")
    weights = Arrays(path, read_state(path))
    lead = "0." if "0.encoder.weight" in weights else ""
    rows, width = weights.shape(f"{lead}encoder.weight", 2)
    if rows != len(listed):
        raise CheckpointError(
            f"{path}: has {rows:,} rows of words, and {files['words']} lists {len(listed):,}.\n"
            "  They belong to different models: copy both again."
        )
    table = weights.take(f"{lead}encoder.weight", rows, width)
    network, cells = _layers(weights, lead, width)
    inner = cells[0] if len(cells) > 1 else width
    if cells != [*[inner] * (len(cells) - 1), width]:
        raise CheckpointError(f"{path}: layers of {cells} cells over words of {width} numbers; expected {width} in the last.")
    tokenizer, places = tokenizer_of(listed, split=split, spelled=_SPELLED, lower=lower_case(listed))
    order = torch.tensor(places)
    network["embeddings.tokens.weight"] = _placed(table, order)
    heads = _head(weights, table, order)
    for copy in _COPIES:
        if copy in weights:
            weights.take(copy, rows, width)
    remarks = [*lost(places, listed, split)]
    if lower_case(listed) and any(word.startswith(("xxmaj", "t_up")) for word in listed):
        remarks.append("fastai marks capitals and repeated letters by words such as xxmaj; texts need them to be read alike.")
    if left := weights.left():
        remarks.append(f"used by no part of cloze: {', '.join(left[:4])}.")
    arguments = {"layers": len(cells), "width": width, "inner": inner, "reuse": 1, "dropout": _DROPOUT}
    single = "[BOS] {A}" if places[tokenizer.role("[BOS]")] >= 0 else "{A}"
    model = PortableModel(complete(arguments, _PART), "left_to_right", network, heads, part=_PART)
    return Imported(
        folder=path.parent, architecture=None, model=model, tokenizer=tokenizer, reading=Reading(single, None, "last"),
        remarks=tuple(remarks), trained_by="awd-lstm",
    )  # fmt: skip


def _layers(weights: Arrays, lead: str, width: int) -> tuple[dict[str, Tensor], list[int]]:
    """The layers under our names, and how many cells each has."""
    network: dict[str, Tensor] = {}
    cells: list[int] = []
    while any(f"{lead}rnns.{len(cells)}.{name}" in weights for name in _RAW):
        layer = f"{lead}rnns.{len(cells)}."
        if f"{layer}module.weight_ih_l0_reverse" in weights:
            raise CheckpointError(f"{weights.path}: its layers read in both directions; cloze's lstm reads from left to right.")
        raw, *copies = [f"{layer}{name}" for name in _RAW if f"{layer}{name}" in weights]
        four, cell = weights.shape(raw, 2)
        input_width, ours = cells[-1] if cells else width, f"layers.{len(cells)}"
        inside = f"{layer}module." if f"{layer}module.bias_ih_l0" in weights else layer
        network[f"{ours}.input.weight"] = weights.take(f"{inside}weight_ih_l0", four, input_width)
        network[f"{ours}.recurrent.weight"] = weights.take(raw, 4 * cell, cell)
        network[f"{ours}.bias"] = weights.take(f"{inside}bias_ih_l0", 4 * cell)
        network[f"{ours}.recurrent.bias"] = weights.take(f"{inside}bias_hh_l0", 4 * cell)
        for copy in copies:  # what was left of the weights after the last dropout
            weights.take(copy, 4 * cell, cell)
        cells.append(cell)
    if not cells:
        raise CheckpointError(f"{weights.path}: no layers of LSTM in it (QRNN is not supported); expected rnns.0.*.")
    return network, cells


def _head(weights: Arrays, table: Tensor, order: Tensor) -> dict[str, PortableHead]:
    """The decoder as the head that predicts words."""
    if "1.decoder.weight" not in weights:
        return {}
    output = weights.take("1.decoder.weight", *table.shape)
    tie, bias = torch.equal(output, table), "1.decoder.bias" in weights
    state = {} if tie else {"head.output.weight": _placed(output, order)}
    if bias:
        state["head.bias"] = _placed(weights.take("1.decoder.bias", len(table)), order)
    return {_HEAD: PortableHead(_HEAD, {"tie": tie, "bias": bias}, state)}


def _placed(rows: Tensor, order: Tensor) -> Tensor:
    """The rows in another order; the mean of all where the place is -1."""
    table = rows[order.clamp(min=0)]
    table[order < 0] = rows.mean(0)
    return table
