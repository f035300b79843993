"""The input of a Transformer: token, position, segment and further vectors summed, then a norm where the system has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.characters import Characters, CharacterTable
from cloze.networks.blocks.norm import make_norm
from cloze.networks.blocks.sinusoid import FixedTable
from cloze.networks.choices import Learned, NoPositions, Norms, Sinusoid


class Embeddings(nn.Module):
    """Tables of one width. ELECTRA shares this module between its networks, so it does not include dropout.

    `positions`: a trained table, a fixed one, or none for any other kind. `norm`: the network's norm; it says whether embeddings
    have one too. `inputs` names further tables and gives their sizes. With `characters` there is no table of tokens.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        width: int,
        positions: Any = NoPositions(),
        segments: int = 0,
        norm: Norms | None = None,
        inputs: Mapping[str, int] | None = None,
        characters: Characters | None = None,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width) if characters is None else None
        self.characters = None if characters is None else CharacterTable(characters, width)
        self.positions: nn.Embedding | FixedTable | None = None
        if isinstance(positions, Learned):
            self.positions = nn.Embedding(positions.max_length, width)
        elif isinstance(positions, Sinusoid):
            self.positions = FixedTable(positions.max_length, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.inputs = nn.ModuleDict({name: nn.Embedding(rows, width) for name, rows in (inputs or {}).items()})
        self.norm = make_norm(norm.kind, width, norm.epsilon) if norm is not None and norm.embedding else None

    def forward(
        self,
        tokens: Tensor,
        position_ids: Tensor | None,
        segments: Tensor | None,
        vectors: Tensor | None,
        inputs: Mapping[str, Tensor] | None = None,
        characters: Tensor | None = None,
    ) -> Tensor:
        """(B, L) ids to (B, L, E); `vectors` (B, L, E) replace the vectors of tokens. Absent segments and inputs count as id 0.

        `characters` (B, L, C) spell tokens that the vocabulary lacks, where words are read by their characters.
        """
        if vectors is not None:
            x = vectors
        elif self.tokens is not None:
            x = F.embedding(tokens, self.tokens.weight)
        else:
            assert self.characters is not None  # one of the two is there
            x = self.characters(tokens, characters)
        if self.positions is not None:
            length = tokens.shape[1]
            rows = self.positions.weight[:length] if position_ids is None else F.embedding(position_ids, self.positions.weight)
            x = x + rows
        if self.segments is not None:
            kind = self.segments.weight[0] if segments is None else F.embedding(segments, self.segments.weight)
            x = x + kind
        for name, table in self.inputs.items():
            assert isinstance(table, nn.Embedding)  # a ModuleDict does not say so
            given = None if inputs is None else inputs.get(name)
            x = x + (table.weight[0] if given is None else F.embedding(given, table.weight))
        return x if self.norm is None else self.norm(x)


def residual_dtype(x: Tensor) -> Tensor:
    """x in the dtype of products, in which the residual stream is kept."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x
