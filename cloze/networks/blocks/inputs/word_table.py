"""A table of word vectors, drawn or read from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError, require_table
from cloze.networks.blocks.inputs.known_vectors import STAND_IN, matrix_of


class WordTable(nn.Module):
    """Vectors of ids, one (E,) each: drawn, or with `vectors` those of that table of the recipe (kind `vectors`).

    Rows that the table knows begin with its vectors. They stay so unless `tune`, and words without one are then zero, as a
    word unknown to GloVe is zero for CoVe; with `tune` such rows are drawn like any other, and everything is trained.
    `tables` are those of the recipe; None where a checkpoint is opened, which brings the rows. Errors: no table of that
    name, or vectors of another width, is a `RecipeError`. Parameter: `tokens.weight` (V, E).
    """

    def __init__(
        self, *, vocab_size: int, width: int, vectors: str | None, tune: bool, tables: Mapping[str, Any] | None, network: str
    ) -> None:
        super().__init__()
        if tune and vectors is None:
            raise RecipeError(f"{network}.tune: whether vectors from elsewhere are trained; write `vectors:`, or leave it out.")
        self.tokens = nn.Embedding(vocab_size, width)
        self.frozen = vectors is not None and not tune
        self.known: Tensor | None
        self.register_buffer("known", None, persistent=False)
        if self.frozen:
            self.tokens.weight.requires_grad_(False)
        if vectors is not None and tables is not None:
            self._read(vectors, tables, network)

    def _read(self, name: str, tables: Mapping[str, Any], network: str) -> None:
        """Copy the vectors of a table; a stand-in, which knows none, is left alone."""
        require_table(f"{network}.vectors", name, tables)
        matrix = matrix_of(tables[name])
        if matrix is None or matrix is STAND_IN or self.tokens.weight.is_meta:
            return
        if matrix.shape != self.tokens.weight.shape:
            raise RecipeError(
                f"{network}.vectors: {name} has {matrix.shape[0]:,} vectors of width {matrix.shape[1]}; expected "
                f"{self.tokens.num_embeddings:,} of width {self.tokens.embedding_dim}.\n"
                f"  Say the width of the file: --set network.embedding_width={matrix.shape[1]}"
            )
        self.known = torch.from_numpy(tables[name].known)
        with torch.no_grad():
            self.tokens.weight.copy_(torch.from_numpy(matrix))

    def reset_parameters(self, draw: Callable[[Tensor], Any]) -> None:
        """Redraw the rows that do not come from elsewhere; in a table that is not trained they are zero."""
        weight = self.tokens.weight
        vectors = None if self.known is None else weight.detach().clone()
        with torch.no_grad():
            if self.frozen and vectors is not None:
                weight.zero_()
            else:
                draw(weight)
            if vectors is not None and self.known is not None:
                weight[self.known] = vectors[self.known]

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L) ids to (B, L, E)."""
        return F.embedding(tokens, self.tokens.weight)
