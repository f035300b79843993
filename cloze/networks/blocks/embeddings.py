"""The input of a Transformer: token, position and segment vectors summed, then a norm where the system has one."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Embeddings(nn.Module):
    """Three tables at one width. ELECTRA shares this module whole between its networks, so dropout stands outside."""

    def __init__(
        self, *, vocab_size: int, width: int, longest: int, segments: int, positions: bool, norm: bool, norm_epsilon: float
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(longest, width) if positions else None
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = nn.LayerNorm(width, eps=norm_epsilon) if norm else None

    def forward(
        self, tokens: Tensor, positions: Tensor | None, segments: Tensor | None, vectors: Tensor | None
    ) -> Tensor:
        """(B, L) ids to (B, L, E); `vectors` (B, L, E) stand in for the token table. Absent segments are segment 0."""
        x = F.embedding(tokens, self.tokens.weight) if vectors is None else vectors
        if self.positions is not None:
            length = tokens.shape[1]
            rows = self.positions.weight[:length] if positions is None else F.embedding(positions, self.positions.weight)
            x = x + rows
        if self.segments is not None:
            kind = self.segments.weight[0] if segments is None else F.embedding(segments, self.segments.weight)
            x = x + kind
        return x if self.norm is None else self.norm(x)

