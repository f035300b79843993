"""The input of a Transformer: token, position, segment and further vectors summed, then a norm where the system has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.inputs.characters import Characters, CharacterTable
from cloze.networks.blocks.inputs.senses import SenseVectors
from cloze.networks.blocks.inputs.without_masks import WithoutMasks
from cloze.networks.blocks.norm import make_norm
from cloze.networks.blocks.positions.sinusoid import FixedTable
from cloze.networks.blocks.visibility import AnyOrder
from cloze.networks.choices import Disentangled, LearnedPositions, NoPositions, Norms, Sinusoid


class Embeddings(nn.Module):
    """Tables of one width. ELECTRA shares this module between its networks, so it does not include dropout.

    `positions`: a trained table, a fixed one, or none for any other kind. `norm`: the network's norm; it says whether embeddings
    have one too. `inputs` names further tables and gives their sizes. With `characters` there is no table of tokens. `scale`
    multiplies the vectors of tokens. `senses` are vectors of senses, by the name of their look-up table; they are added to those
    of the tokens that may have them. `untrained_id` is the id of further inputs that stands for nothing: it trains nothing.
    `without_masks` removes the vectors of masked tokens and scales the others.
    """

    def __init__(
        self, *, vocab_size: int, width: int, positions: Any = NoPositions(), segments: int = 0, norm: Norms | None = None,
        inputs: Mapping[str, int] | None = None, characters: Characters | None = None, scale: float = 1.0,
        senses: Mapping[str, SenseVectors] | None = None, untrained_id: int | None = None,
        without_masks: WithoutMasks | None = None,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.tokens = nn.Embedding(vocab_size, width) if characters is None else None
        self.characters = None if characters is None else CharacterTable(characters, width)
        self.positions = position_table(positions, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.inputs = nn.ModuleDict({name: nn.Embedding(rows, width, untrained_id) for name, rows in (inputs or {}).items()})
        self.norm = make_norm(norm.kind, width, norm.epsilon) if norm is not None and norm.embedding else None
        self.senses = nn.ModuleDict(senses or {})
        self.without_masks = without_masks

    @property
    def further(self) -> Mapping[str, nn.Embedding]:
        """The tables of further inputs and of senses, by name."""
        tables: dict[str, Any] = {**dict(self.inputs.items()), **dict(self.senses.items())}
        return tables

    def forward(
        self, tokens: Tensor, position_ids: Tensor | None = None, segments: Tensor | None = None, vectors: Tensor | None = None,
        inputs: Mapping[str, Tensor] | None = None, characters: Tensor | None = None, block: Tensor | None = None,
        order: AnyOrder = "open",
    ) -> Tensor:
        """(B, L) ids to (B, L, E); `vectors` (B, L, E) replace the vectors of tokens. Absent segments and inputs count as id 0.

        `characters` (B, L, C) spell tokens that the vocabulary lacks, where words are read by their characters. `block` (B, L)
        says which tokens are of one text, and `order` how they are read, where masked tokens change the others' vectors.
        """
        if vectors is not None:
            x = vectors
        elif self.tokens is not None:
            x = F.embedding(tokens, self.tokens.weight)
        else:
            assert self.characters is not None  # one of the two is there
            x = self.characters(tokens, characters)
        if self.without_masks is not None:
            x = self.without_masks(x, tokens, block, order)
        for added in self.senses.values():
            x = x + added(tokens)
        x = add_positions(x if self.scale == 1.0 else x * self.scale, self.positions, position_ids)
        if self.segments is not None:
            x = x + _vectors(self.segments, segments)
        for name, table in self.inputs.items():
            x = x + _vectors(table, None if inputs is None else inputs.get(name))
        return x if self.norm is None else self.norm(x)


def _vectors(table: Any, ids: Tensor | None) -> Tensor:
    """The vectors of ids, by default that of id 0."""
    none = table.padding_idx
    if ids is None:
        vector: Tensor = table.weight[0] if none is None else table.weight[0].detach()
        return vector
    return F.embedding(ids, table.weight, none)


def position_table(positions: Any, width: int) -> nn.Embedding | FixedTable | None:
    """The table of learned or sinusoidal positions; None for any other kind."""
    if isinstance(positions, Sinusoid):
        return FixedTable(positions.max_length, width, positions.layout, positions.first)
    learned = isinstance(positions, Disentangled) and positions.absolute == "embeddings"
    added = learned or isinstance(positions, LearnedPositions)
    return nn.Embedding(positions.max_length, width) if added else None


def add_positions(x: Tensor, table: nn.Embedding | FixedTable | None, position_ids: Tensor | None, past: int = 0) -> Tensor:
    """x (B, L, D) plus the vectors of its positions, by default those after `past` tokens."""
    if table is None:
        return x
    return x + (table.weight[past : past + x.shape[1]] if position_ids is None else F.embedding(position_ids, table.weight))


def to_residual_dtype(x: Tensor) -> Tensor:
    """x in the dtype of products, in which the residual stream is kept."""
    return x.to(torch.get_autocast_dtype(x.device.type)) if torch.is_autocast_enabled(x.device.type) else x
