"""Vectors of senses, of which each token of the vocabulary may have several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import require_table
from cloze.networks.choices import TableWithSenses
from cloze.networks.cost import Operations, SequenceSize


class SenseVectors(nn.Embedding):
    """A vector for each sense, and for each token the weights with which those of its senses are added.

    SenseBERT's static map from words to supersenses (Levine et al., 2020, §3.1): `weight` (S, E) is trained, `mixed` (V, S) is
    not, and is no part of the state. Without senses, as of special tokens and [MASK], a token gets zero.
    """

    mixed: Tensor

    def __init__(self, table: Any, vocab_size: int, width: int) -> None:
        super().__init__(table.size, width)
        mixing = table.mixed  # None for a network that is only measured
        mixed = torch.zeros(vocab_size, table.size)
        if mixing is not None:
            mixed[: len(mixing)] = torch.from_numpy(mixing)
        self.register_buffer("mixed", mixed, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L) ids to the weighted sums of the vectors of their senses, (B, L, E)."""
        return F.embedding(tokens, self.mixed) @ self.weight

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The weights of senses times their vectors, for every token."""
        counted.add_weight_products(size.tokens * self.weight.numel(), trained=self.weight.requires_grad, needs_grad=False)
        counted.pass_through(self)

    def all_tokens(self) -> Tensor:
        """What is added to the vector of every token, (V, E)."""
        return self.mixed @ self.weight


def sense_vectors(part: TableWithSenses, vocab_size: int, width: int) -> dict[str, SenseVectors]:
    """The vectors of the senses in the part's look-up table, by its name; one that the recipe lacks is a `RecipeError`."""
    tables: Mapping[str, Any] = {} if part.tables is None else part.tables
    require_table("embedding.table_with_senses.senses", part.senses, tables)
    return {part.senses: SenseVectors(tables[part.senses], vocab_size, width)}
