"""Embeddings that transformers lacks, as those that it has: vectors of senses (SenseBERT) and of labels (SentiLARE).

A folder holds the sums under transformers' names, and what was added up in `cloze/embeddings.safetensors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.files import read_tensors
from cloze.interop.model import PortableHead, PortableModel
from cloze.knowledge import SupersenseTable

OWN_EMBEDDINGS = "cloze/embeddings.safetensors"
_SENSES, _LABELS = "table_with_senses", "table_with_labels"
_EXTRA_ARGUMENT = {_SENSES: "senses", _LABELS: "inputs"}  # the argument that a plain table lacks
_TOKENS, _POSITIONS, _OUTPUT = "embeddings.tokens.weight", "embeddings.positions.weight", "head.output.weight"


def summed_tables(model: PortableModel) -> dict[str, Tensor]:
    """The tables that `plain_embeddings` adds up, by name; none for a network that transformers reads as it is."""
    kind = model.flat.get("embedding")
    if kind == _SENSES:
        return _named(model, _TOKENS, "embeddings.senses.")
    if kind == _LABELS and _POSITIONS in model.network:
        return _named(model, _POSITIONS, "embeddings.inputs.")
    return {}


def with_plain_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with a plain table in the place of one whose vectors of senses or labels are added up."""
    embedding = arguments.get("embedding")
    kind = next((name for name in _EXTRA_ARGUMENT if isinstance(embedding, Mapping) and name in embedding), None)
    if kind is None or not isinstance(embedding, Mapping):
        return dict(arguments)
    table = {key: value for key, value in embedding[kind].items() if key != _EXTRA_ARGUMENT[kind]}
    return {**arguments, "embedding": {"table": table}}


def plain_embeddings(model: PortableModel) -> PortableModel:
    """The same function of texts by a network with a plain table.

    Senses: each row of its token table holds the vectors of the token's senses as well. The output rows of heads that are tied to
    the token table lack them, so these heads get rows of their own. Labels: a text shows none, and the vectors of "none" are part
    of the positions.
    """
    embeddings = summed_tables(model)
    if not embeddings:
        return model
    kind = str(model.flat["embedding"])
    part = model.arguments["embedding"][kind]
    tensors = {name: tensor for name, tensor in model.network.items() if name not in embeddings or name in (_TOKENS, _POSITIONS)}
    if kind == _LABELS:
        none = torch.stack([tensor[0] for name, tensor in embeddings.items() if name != _POSITIONS]).sum(0)
        network = {**tensors, _POSITIONS: embeddings[_POSITIONS] + none}
        return replace(model, arguments=with_plain_table(model.arguments), network=network)
    arrays = {key: array.numpy() for key, array in model.tables[part["senses"]].arrays.items()}
    mixed = torch.from_numpy(SupersenseTable.restored(arrays).mixed)
    table = embeddings[_TOKENS].clone()
    table[: len(mixed)] += mixed.to(table.dtype) @ embeddings[f"embeddings.senses.{part['senses']}.weight"]
    heads = {key: _untied(head, embeddings[_TOKENS]) for key, head in model.heads.items()}
    return replace(model, arguments=with_plain_table(model.arguments), network={**tensors, _TOKENS: table}, heads=heads)


def with_own_embeddings(model: PortableModel, folder: Path) -> PortableModel:
    """A model whose folder holds sums, with its own tables and its tied heads."""
    kind = model.flat.get("embedding")
    if kind not in (_SENSES, _LABELS):
        return model
    path = folder / OWN_EMBEDDINGS
    if not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; the network adds vectors of {'senses' if kind == _SENSES else 'labels'}, which it "
            "holds.\n  The copy is incomplete: copy the whole folder again."
        )
    heads = {key: _tied(head) for key, head in model.heads.items()} if kind == _SENSES else model.heads
    return replace(model, network={**model.network, **read_tensors(path)}, heads=heads)


def _named(model: PortableModel, table: str, prefix: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in model.network.items() if name == table or name.startswith(prefix)}


def _untied(head: PortableHead, tokens: Tensor) -> PortableHead:
    if not head.argument("tie") or _OUTPUT in head.state:
        return head
    return replace(head, arguments={**head.arguments, "tie": False}, state={**head.state, _OUTPUT: tokens})


def _tied(head: PortableHead) -> PortableHead:
    if not head.argument("tie"):
        return head
    return replace(head, state={key: tensor for key, tensor in head.state.items() if key != _OUTPUT})
