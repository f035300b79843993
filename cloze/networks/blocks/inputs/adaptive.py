"""Adaptive embedding: frequent ids get wide vectors, rare ids narrow ones that are projected up."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.cost import Operations, SequenceSize


def bounds(cutoffs: Sequence[int], vocab_size: int) -> list[tuple[int, int]]:
    """First and last-plus-one id of every cluster: (0, c1), (c1, c2), …, (cn, V). Ids must be sorted by frequency."""
    edges = [0, *cutoffs, vocab_size]
    if any(low >= high for low, high in zip(edges, edges[1:], strict=False)):
        raise RecipeError(
            f"cutoffs: {list(cutoffs)} must ascend and lie between 0 and the size of the vocabulary, {vocab_size}."
        )
    return list(zip(edges, edges[1:], strict=False))


def piece_widths(width: int, divide: int, clusters: int) -> list[int]:
    """The width of each cluster's vectors: width, width / divide, width / divide², …"""
    if divide < 1 or width // divide ** (clusters - 1) < 1:
        raise RecipeError(f"divide: {divide} leaves the last of {clusters} clusters no width out of {width}; expected 1 or more.")
    return [width // divide**number for number in range(clusters)]


class AdaptiveEmbedding(nn.Module):
    """(B, L) ids to (B, L, D) (Baevski & Auli, 2019, §3), as Transformer-XL's code lays it out.

    With `divide: 1` there is one table, projected only if it is narrower than `width`. Otherwise cluster i has a table of
    its own, `embedding_width / divide^i` wide, and always a projection. Parameters: `tables.i.weight`, `projections.i.weight`.
    """

    def __init__(
        self, *, vocab_size: int, width: int, embedding_width: int | None = None, cutoffs: Sequence[int] = (), divide: int = 1
    ) -> None:
        super().__init__()
        first = embedding_width or width
        self.divide, self.width = divide, first
        self.bounds = bounds(cutoffs if divide > 1 else (), vocab_size)
        widths = piece_widths(first, divide, len(self.bounds))
        self.tables = nn.ModuleList(
            nn.Embedding(high - low, across) for (low, high), across in zip(self.bounds, widths, strict=True)
        )
        projected = divide > 1 or first != width
        self.projections = nn.ModuleList(nn.Linear(across, width, bias=False) for across in widths) if projected else None

    @property
    def single(self) -> nn.Embedding | None:
        """The one table there is, None where there are several, or where it is projected."""
        only = self.tables[0]
        alone = len(self.tables) == 1 and self.projections is None
        return only if alone and isinstance(only, nn.Embedding) else None

    @property
    def embedding_dim(self) -> int:
        """What a head that ties to one table asks first."""
        raise RecipeError(
            "the network's embedding is adaptive or projected: there is no one table to tie to. Use the objective "
            "adaptive_prediction with the same cutoffs and divide, or `tie: false`."
        )

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The projections, each for the ids of its cluster."""
        counted.pass_through(*self.tables)
        tokens, clusters = counted.fields["tokens"], [counted.branch() for _ in self.projections or ()]
        for cluster, (low, high), up in zip(clusters, self.bounds, self.projections or (), strict=False):
            cluster.add(int(((tokens >= low) & (tokens < high)).sum()), up)
        counted.add_branches(*clusters)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors of ids."""
        if len(self.tables) == 1:
            return self._vectors(0, tokens)
        flat = tokens.flatten()  # (B·L)
        vectors: Tensor | None = None
        for number, (low, high) in enumerate(self.bounds):
            # The places in `flat` of the ids of this cluster, and their vectors: every cluster is projected to the same D.
            positions = ((flat >= low) & (flat < high)).nonzero().view(-1)
            rows = self._vectors(number, flat[positions] - low)
            vectors = rows.new_zeros(len(flat), rows.shape[-1]) if vectors is None else vectors
            vectors = vectors.index_copy(0, positions, rows)
        assert vectors is not None  # there is at least one cluster
        return vectors.view(*tokens.shape, -1)

    def _vectors(self, number: int, ids: Tensor) -> Tensor:
        table = self.tables[number]
        assert isinstance(table, nn.Embedding)
        rows = F.embedding(ids, table.weight)
        return rows if self.projections is None else self.projections[number](rows)
