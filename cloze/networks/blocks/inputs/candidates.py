"""The candidates of items: the entities that each surface form may mean, from a look-up table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze.batch import on_host, send
from cloze.errors import RecipeError, require_table
from cloze.networks.blocks.inputs.known_vectors import STAND_IN, matrix_of


class EntityCandidates(NamedTuple):
    """Every candidate of every item, (P,) each: the flat number of the item, the entity, and its prior."""

    item: Tensor
    entity: Tensor
    prior: Tensor


class Candidates(nn.Module):
    """The candidates and priors of the recipe's table `name`, which brings them whenever the module is built.

    A stand-in for the table, which only has a size, has no candidates. Errors: no such table, or one of another kind, is a
    `RecipeError` about the argument `part`.
    """

    def __init__(self, *, name: str, tables: Mapping[str, Any] | None, part: str) -> None:
        super().__init__()
        lookups = {} if tables is None else tables
        require_table(part, name, lookups)
        table = lookups[name]
        try:
            ids = None if matrix_of(table) is STAND_IN else table.candidates
        except AttributeError:
            raise RecipeError(f"{part}: the table {name!r} has no candidates; expected a table `surfaces`.") from None
        # They stay on the CPU, where the number of candidates is known without waiting for a GPU.
        none = torch.zeros(table.size + 1, 1, device="cpu")
        self.ids = none.long() if ids is None else torch.from_numpy(ids).long()
        self.priors = none if ids is None else torch.from_numpy(table.priors).clone()

    def forward(self, items: Tensor) -> EntityCandidates:
        """Of items (E, R)."""
        surfaces = on_host(items).flatten().long()
        ids = self.ids[surfaces]
        item, slot = (ids > 0).nonzero().unbind(1)
        parts = (item, ids[item, slot], self.priors[surfaces[item], slot])
        return EntityCandidates(*(send(part, items.device) for part in parts))
