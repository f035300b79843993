"""Vectors from outside of a network that are not trained, such as those of entities: the matrix of a look-up table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.errors import RecipeError, require_table

#: The vectors of what takes the place of a table before the corpus is known, and only has a size.
STAND_IN = object()


def matrix_of(table: Any) -> Any:
    """The vectors (size, W) of a look-up table, None if it has none, `STAND_IN` for a stand-in."""
    return getattr(table, "matrix", STAND_IN)


class KnownVectors(nn.Module):
    """The vectors (size, W) of the recipe's table `name`, which stay as they are; row 0 stands for no item.

    The table brings them whenever the network is built, so a checkpoint holds the table and not the vectors. A stand-in, which
    only has a size, gives zeros. Errors: no such table, one without vectors, or vectors of another width, is a `RecipeError`
    about the argument `part`; `option` is the path of the one that sets the width.
    """

    def __init__(
        self, *, name: str, width: int, tables: Mapping[str, Any] | None, part: str, option: str
    ) -> None:
        super().__init__()
        lookups = {} if tables is None else tables
        require_table(part, name, lookups)
        matrix = matrix_of(lookups[name])
        if matrix is None:
            raise RecipeError(
                f"{part}: the table {name!r} has no vectors. Name a run of transe or a file of vectors: "
                f"--set tables.{name}.vectors=PATH"
            )
        if matrix is not STAND_IN and matrix.shape[1] != width:
            raise RecipeError(
                f"{part}: the vectors of {name!r} have width {matrix.shape[1]}, expected {width}.\n"
                f"  Say their width: --set {option}={matrix.shape[1]}"
            )
        self.weight: Tensor
        weight = torch.zeros(lookups[name].size, width) if matrix is STAND_IN else torch.from_numpy(matrix).float().clone()
        self.register_buffer("weight", weight, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """(…) ids to (…, W)."""
        return F.embedding(ids.long(), self.weight)
