"""Vectors of senses in a Hugging Face folder: they become part of the token table, which transformers reads (SenseBERT)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from cloze.errors import CheckpointError
from cloze.interop.files import read_tensors
from cloze.interop.model import Head, Model

#: The token table without senses, and the vectors of senses.
OWN_SENSES = "cloze/senses.safetensors"
_PART, _TOKENS, _OUTPUT = "table_with_senses", "embeddings.tokens.weight", "head.output.weight"


def has_senses(model: Model) -> bool:
    """Whether the network adds vectors of senses to those of tokens."""
    return model.flat.get("embedding") == _PART


def kept_apart(model: Model) -> dict[str, torch.Tensor]:
    """The token table and the vectors of senses, which a folder holds next to their sums; nothing without senses."""
    names = [name for name in model.network if name.startswith("embeddings.senses.")]
    return {name: model.network[name] for name in (_TOKENS, *names)} if names else {}


def without_senses(model: Model) -> Model:
    """The same function by a network without senses: each row of its token table holds the vectors of its senses as well.

    The output rows of heads that are tied to the token table lack them, so these heads get rows of their own.
    """
    from cloze.corpus import SupersenseTable

    if not has_senses(model):
        return model
    part = model.arguments["embedding"][_PART]
    name = f"embeddings.senses.{part['senses']}.weight"
    senses = SupersenseTable.restored({key: array.numpy() for key, array in model.tables[part["senses"]].arrays.items()})
    tokens, vectors = model.network[_TOKENS], model.network[name]
    table = tokens.clone()
    table[: len(senses.mixed)] += torch.from_numpy(senses.mixed).to(table.dtype) @ vectors
    kept = {key: tensor for key, tensor in model.network.items() if key != name}
    plain = {key: value for key, value in part.items() if key != "senses"}
    heads = {key: _untied(head, tokens) for key, head in model.heads.items()}
    return replace(
        model, arguments={**model.arguments, "embedding": {"table": plain}}, network={**kept, _TOKENS: table}, heads=heads,
    )


def with_senses(model: Model, folder: Path) -> Model:
    """A model as `without_senses` wrote it to a folder, with its own token table, its vectors of senses and its tied heads."""
    if not has_senses(model):
        return model
    path = folder / OWN_SENSES
    if not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; the network adds vectors of senses, which it holds.\n"
            "  The copy is incomplete: copy the whole folder again."
        )
    return replace(
        model, network={**model.network, **read_tensors(path)}, heads={key: _tied(head) for key, head in model.heads.items()},
    )


def _untied(head: Head, tokens: torch.Tensor) -> Head:
    if not head.argument("tie") or _OUTPUT in head.state:
        return head
    return replace(head, arguments={**head.arguments, "tie": False}, state={**head.state, _OUTPUT: tokens})


def _tied(head: Head) -> Head:
    if not head.argument("tie"):
        return head
    return replace(head, state={key: tensor for key, tensor in head.state.items() if key != _OUTPUT})
