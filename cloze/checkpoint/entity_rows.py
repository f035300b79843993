"""`cloze vocab entities`: a checkpoint with entities as tokens, whose rows are aligned from vectors without training (E-BERT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cloze.atomic import require_new
from cloze.changes.align import aligned
from cloze.checkpoint.share import card_of, write_copy
from cloze.errors import CheckpointError, CorpusError
from cloze.interop import Imported, import_folder
from cloze.interop.vectors import open_vectors
from cloze.recipe.parts import class_of
from cloze.text import Tokenizer
from cloze.text.annotation.mentions import Given
from cloze.text.visual import with_tokens

PREFIX = "ENTITY/"
Reading = Literal["replace", "concat"]
_NEVER = -1e4  # the bias of a token that no head predicts: its probability is exactly zero


@dataclass(frozen=True)
class AddedEntities:
    """How many `entities` got rows, the `words` that the map was fitted to, and the share of their rows that it explains."""

    entities: int
    words: int
    explained: float
    remarks: Sequence[str]


def add_entities(source: Path, vectors: Path | str, out: Path, *, prefix: str = PREFIX) -> AddedEntities:
    """Write the checkpoint `source` to the new folder `out` with a token for each entity of a file of vectors.

    Entities are the entries that begin with `prefix`; all others are words. The vectors are mapped to the raw token table by
    least squares over the words that are single pieces (E-BERT; Poerner et al., 2020). The token of `ENTITY/Q42` is
    `[ENTITY/Q42]` wherever a text contains it. Nothing else changes: a text without entities has the same states, and no head
    predicts an entity. Raises a `CheckpointError` for a head that would, because its scores of tokens have no bias, and for a
    checkpoint that has a token for one of the entities already.
    """
    require_new(out)
    imported, embeddings = import_folder(source), open_vectors(vectors)
    tokenizer, model = imported.tokenizer, imported.model
    table = model.network.get("embeddings.tokens.weight")
    if table is None:
        raise CheckpointError(f"{source}: the network has no table of tokens, to which entities could be added.")
    entities = [word for word in embeddings.words if word.startswith(prefix) and len(word) > len(prefix)]
    if not entities:
        raise CorpusError(
            f"{vectors}: no entry begins with {prefix!r}, so none is an entity: {', '.join(map(repr, embeddings.words[:3]))}, …\n"
            f"  Write entities with that prefix, or name another one with --prefix."
        )
    if known := [entity for entity in entities if tokenizer.id(f"[{entity}]") is not None]:
        raise CheckpointError(
            f"{source}: has {len(known):,} of the {len(entities):,} entities of {vectors} already, such as [{known[0]}].\n"
            "  Start from the checkpoint without entities, or leave out of the vectors those that it has."
        )
    _require_biases(source, imported, len(table))
    alignment = aligned(embeddings, tokenizer, table[: tokenizer.size].float().numpy())
    rows = torch.from_numpy(alignment.rows(np.stack([embeddings.vector(entity) for entity in entities]))).to(table.dtype)
    new_tokenizer = with_tokens(tokenizer, [f"[{entity}]" for entity in entities])
    changed = with_rows(imported, new_tokenizer, rows, outputs=torch.zeros_like(rows), bias=_NEVER)
    card = card_of(source, imported, languages=(), licence=None, data=None, folder=out.name)
    remarks = write_copy(source, out, changed, card)
    return AddedEntities(len(entities), alignment.words, alignment.explained, remarks)


def _require_biases(source: Path, imported: Imported, rows: int) -> None:
    """Refuse a head that predicts tokens, of a table with so many rows, without the bias that keeps entities out."""
    for name, head in imported.model.heads.items():
        kind = class_of("objective", head.part)
        biased = any(tensor.dim() == 1 and len(tensor) == rows for tensor in head.state.values())
        if kind.of_tokens and not kind.training_only and not biased:
            raise CheckpointError(
                f"{source}: the head {name} ({head.part}) scores tokens without a bias for each, so it would predict entities.\n"
                "  Give a checkpoint whose head has one, such as BERT's, RoBERTa's or ELECTRA's."
            )


def with_rows(imported: Imported, tokenizer: Tokenizer, rows: Tensor, *, outputs: Tensor, bias: float) -> Imported:
    """A checkpoint with a tokenizer of N more tokens: their `rows` (N, D) of its token table, and in heads that score all tokens
    their rows `outputs` (N, D) and this `bias`."""
    table, old_size = imported.model.network["embeddings.tokens.weight"], imported.tokenizer.size

    def longer(tensor: Tensor) -> Tensor:
        if len(tensor) != len(table) or tensor.dim() not in (1, 2):
            return tensor
        new_rows = outputs.to(tensor) if tensor.shape[1:] == outputs.shape[1:] else tensor.new_zeros(len(rows), *tensor.shape[1:])
        return torch.cat([tensor[:old_size], tensor.new_full((len(rows),), bias) if tensor.dim() == 1 else new_rows])

    network = {**imported.model.network, "embeddings.tokens.weight": torch.cat([table[:old_size], rows.to(table)])}
    heads = {
        name: replace(head, state={key: longer(tensor) for key, tensor in head.state.items()})
        for name, head in imported.model.heads.items()
    }
    return replace(imported, tokenizer=tokenizer, model=replace(imported.model, network=network, heads=heads))


def with_mentions(marked_text: Given, tokenizer: Tokenizer, reading: Reading, *, prefix: str = PREFIX) -> str:
    """A text with the tokens of its mentions, of those that the tokenizer knows.

    `replace`: the token stands for the mention. `concat`: the token, a slash, and the mention (E-BERT's better reading).
    """
    pieces, done = [], 0
    for start, stop, name in marked_text.units:
        token = f"[{prefix}{name}]"
        if tokenizer.id(token) is not None:
            replacement = token if reading == "replace" else f"{token} / {marked_text.text[start:stop]}"
            pieces += [marked_text.text[done:start], replacement]
            done = stop
    return "".join([*pieces, marked_text.text[done:]])
