"""Vectors of texts: any layer, pooled over the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.array_files import save_array
from cloze.atomic import whole_file
from cloze.batch import Batch
from cloze.decoding.bound_head import bind_head
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import cut_remark
from cloze.decoding.reader import Checkpoint, Reader
from cloze.decoding.unknown import known_words, leaves_out_unknown
from cloze.decoding.vectors.prompted import with_prompts
from cloze.errors import Parameter, UserError, propose
from cloze.objectives.distances.embedding import Embedding

Pooling = Literal["mean", "max", "first", "summary"]
#: What a vector is of: a text, the items next to it, or both.
Subject = Literal["text", "items", "pair"]
HEAD = "embedding"


def embed(
    reader: Reader,
    texts: Sequence[str] | Sequence[Framed],
    *,
    layer: int = -1,
    pooling: Pooling | None = None,
    normalise: bool = False,
    length: int | None = None,
    rows: int | None = None,
    head: Any = None,
    of: Subject = "text",
    report: Callable[[int], None] = lambda done: None,
) -> NDArray[np.float32]:
    """One vector per text: (N, D) float32, in the order of the texts.

    With a `head`, what `sentence_head` found, the vectors of the top layer are those that it was trained to give, unless a
    `pooling` is named. Otherwise they are pooled states, by default the mean.
    `layer` counts from 0, the embeddings, to the number of layers; negative numbers count from the top. `pooling`: `mean`
    and `max` over every token that is not padding, [CLS] and [SEP] included (as sentence-transformers does), `first` the
    first token, `summary` the token that the system's reading names. `normalise` gives vectors of length 1. Texts are cut
    to what the network can read, or to `length` tokens. `rows` are the most texts of a batch, which is as large as suits
    the device (`Reader.batches`). The vector of a text without tokens is zero; a table of word vectors leaves
    unknown words out (`vector_remarks`).
    `of: items` makes vectors of the items that texts are read with, from their top states, and `of: pair` takes the state that
    a network makes of both, `pooled`. A `UserError` if it has none, or if a text has no items.
    """
    if of not in get_args(Subject):
        raise UserError(f"unknown subject {of!r}. {propose(of, get_args(Subject))}")
    if of != "text" and layer != -1:
        raise UserError(_option("of", of), ": these vectors come from the top layer. Omit ", _option("layer"), ".")
    if (of == "pair" and pooling is not None) or (of == "items" and pooling == "summary"):
        raise UserError(_option("of", of), ": these vectors are not pooled in this way. Omit ", _option("pooling"), ".")
    vector_head = head if as_trained(layer, pooling, of) else None
    pooling = pooling or "mean"
    if pooling not in get_args(Pooling):
        raise UserError(f"unknown pooling {pooling!r}. {propose(pooling, get_args(Pooling))}")
    framed = [t if isinstance(t, Framed) else reader.encode([t], max_length=length)[0] for t in texts]
    if vector_head is None and leaves_out_unknown(reader):
        framed = known_words(reader, framed)
    vectors: NDArray[np.float32] | None = None
    for index in reader.batches([len(row) for row in framed], rows=rows):
        batch_rows = [framed[i] for i in index]
        if of == "text":
            batch_vectors = _embed_batch(reader, batch_rows, layer, pooling, vector_head).cpu().numpy()
        else:
            batch_vectors = _of_items(reader, batch_rows, pooling, of).cpu().numpy()
        if vectors is None:
            vectors = np.empty((len(framed), batch_vectors.shape[1]), np.float32)
        vectors[index] = batch_vectors
        report(len(index))
    if vectors is None:
        raise UserError("no text to embed.")
    vectors[[len(row) == 0 for row in framed]] = 0.0
    if normalise:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors


@torch.inference_mode()
def _embed_batch(reader: Reader, framed: Sequence[Framed], layer: int, pooling: Pooling, head: Any) -> Tensor:
    batch = reader.batch(framed)
    if head is not None:
        everything = torch.arange(len(framed), device=reader.device)
        return reader.scores(head, reader.states(batch, head.reads), batch, everything).float()
    network = reader.network
    makes_summary = "summary" in network.gives and "summaries" not in network.takes and not network.summarises_decoder
    if pooling == "summary" and layer == -1 and makes_summary:
        summary: Tensor = reader.states(batch, {"summary"})["summary"]  # of the network's own making, not the state of one token
        return summary.float()
    return pool(layer_states(reader, batch, layer).float(), batch, pooling)


def _option(name: str, value: str | None = None) -> Parameter:
    return Parameter(name, value, "option")


@torch.inference_mode()
def _of_items(reader: Reader, framed: Sequence[Framed], pooling: Pooling, of: Subject) -> Tensor:
    """The vectors of the items of some texts, or of text and items together (B, W)."""
    state = "item_hidden" if of == "items" else "pooled"
    if state not in reader.network.gives:
        raise UserError(_option("of", of), ": this network only makes vectors of texts. Omit ", _option("of"), ".")
    batch = reader.batch(framed)
    counts = next((batch[f"item_length/{name}"] for name in reader.network.item_sets if f"item_length/{name}" in batch), None)
    if counts is None or not bool((counts > 0).all()):
        raise UserError(
            _option("of", of), ": a text has no picture, or its picture has no items. Add ", _option("items", "FILE"), "."
        )
    vectors: Tensor = reader.states(batch, {state})[state].float()
    if of == "pair":
        return vectors
    real = torch.arange(vectors.shape[1], device=vectors.device) < counts[:, None]
    return pool(vectors, Batch({"block": real.long()}, checked=True), pooling)


def sentence_head(loaded: Checkpoint) -> Any:
    """The head of a checkpoint that gives vectors of texts, with its readings bound; None if it has none."""
    head = loaded.heads.get(HEAD)
    return bind_head(head, loaded.reads.get(HEAD)) if isinstance(head, Embedding) else None


def as_trained(layer: int, pooling: Pooling | str | None, of: Subject | str) -> bool:
    """Whether vectors are made as a checkpoint was trained to make them. Only for these it has a head, with the length of its
    texts, and a default prompt; all others are pooled from states."""
    return layer == -1 and pooling is None and of == "text"


def frame_texts(
    loaded: Checkpoint, reader: Reader, texts: Sequence[str], *, trained: bool, prompt: str | None = None,
    length: int | None = None,
) -> list[Framed]:
    """Texts as they are read for vectors, with the prompt named `prompt`, cut to `length` tokens. The defaults of a checkpoint
    hold if its vectors are made as it was `trained` (`as_trained`)."""
    if length is None and trained:
        length = length_of(loaded)
    return reader.encode(with_prompts(loaded, texts, prompt, default=trained), max_length=length)


def cut_text_remark(framed: Sequence[Framed]) -> str | None:
    """`cut_remark` of texts that are read for vectors."""
    longest = max(map(len, framed), default=0)
    return cut_remark([row.cut for row in framed], longest, way_out="split them into shorter texts and average the vectors")


def length_of(loaded: Checkpoint) -> int | None:
    """How many tokens of a text the head `embedding` of a checkpoint reads; None: as many as the network can."""
    head = loaded.heads.get(HEAD)
    return head.length if isinstance(head, Embedding) else None


def layer_states(reader: Reader, batch: Batch, layer: int) -> Tensor:
    """The states (B, L, D) of one layer; only the top layer avoids keeping the others."""
    if layer == -1:
        hidden: Tensor = reader.states(batch, {"hidden"})["hidden"]
        return hidden
    if "layers" not in reader.network.gives:
        raise UserError(f"layer {layer}: this network gives only its top layer.\n  Leave --layer out, or take -1.")
    layers: Any = reader.states(batch, {"layers"})["layers"]
    count = len(layers)
    if not -count <= layer < count:
        only = "only layer 0" if count == 1 else f"the layers 0 to {count - 1}, or -1 to {-count}"
        raise UserError(f"layer {layer}: this network has {only}.")
    chosen: Tensor = layers[layer]
    return chosen


def pool(states: Tensor, batch: Batch, pooling: Pooling) -> Tensor:
    """States (B, L, D) of a batch as one vector per row (B, D)."""
    if pooling == "first":
        return states[:, 0]
    if pooling == "summary":
        return states.flatten(0, 1)[batch["summaries"]]
    if "block" not in batch:
        return states.mean(1) if pooling == "mean" else states.amax(1)
    real = (batch["block"] > 0)[:, :, None]
    if pooling == "max":
        return states.masked_fill(~real, -torch.inf).amax(1)
    return (states * real).sum(1) / real.sum(1)


def save_vectors(path: Path, vectors: NDArray[np.float32]) -> Path:
    """Write vectors as a .npy file (the ending is added where it is missing), whole or not at all; returns its path."""
    target = path if path.suffix == ".npy" else path.with_name(path.name + ".npy")
    with whole_file(target) as stage, stage.open("wb") as file:
        save_array(file, vectors)
    return target
