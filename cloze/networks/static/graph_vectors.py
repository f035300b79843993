"""Vectors of the entities and relations of a knowledge graph: a relation is a step from head to tail (TransE)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import Width
from cloze.errors import RecipeError
from cloze.networks.blocks.computed import own_weight
from cloze.networks.clock import Clock
from cloze.networks.network import Network, StateKind, named_sizes
from cloze.registry import Given, register


@register("network", "graph_vectors")
class GraphVectors(Network):
    """One vector per entity and per relation; a fact has h + r ≈ t (TransE; Bordes et al., 2013, §2).

    It reads rows of three tokens: head, relation, tail. **States.** `hidden` (B, 3, D): their vectors; `distance` (B,):
    ‖h + r - t‖ with the `norm` 1 (sum of absolute values) or 2 (Euclidean).

    **Length.** `unit: updated`: before each step in training, entities are divided by their Euclidean length, relations only at
    the start (algorithm 1 of the paper). `unit: read`: entities and relations are divided by their lengths whenever they are
    read, and the gradient passes through the division (OpenKE's `TransE.py` with `norm_flag`). `unit: free`: neither.

    **Start.** Uniform in ±6/√width (algorithm 1).

    Parameters: `embeddings.weight` (V, D): the entities follow [UNK], the relations follow the entities. The buffer
    `first_relation` is the id of the first relation.

    >>> network = GraphVectors(width=4, vocab_size=9, entity_count=5)
    >>> tuple(network(want=frozenset({"distance"}), tokens=torch.tensor([[1, 6, 2]]))["distance"].shape)
    (1,)
    """

    of_words = True
    of_triples = True
    sees: ClassVar[Mapping[str, str]] = MappingProxyType({
        "hidden": "an entity or a relation sees nothing but itself: it has one vector, whatever the triple",
    })  # fmt: skip
    sizes = named_sizes("width", tiny=(32,), mini=(50,), small=(100,), medium=(200,), base=(200,), large=(500,))

    def __init__(
        self, *, width: Width, norm: Literal[1, 2] = 1, unit: Literal["updated", "read", "free"] = "updated",
        vocab_size: Given[int], entity_count: Given[int | None] = None, clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__()
        self.width, self.norm, self.unit, self.vocab_size = width, norm, unit, vocab_size
        self.clock = Clock() if clock is None else clock
        self.embeddings = nn.Embedding(vocab_size, width)
        first = vocab_size if entity_count is None else 1 + entity_count
        self.first_relation: Tensor
        self.register_buffer("first_relation", torch.tensor(first))
        self.takes = self.needs
        self.gives = {
            "hidden": StateKind("B L D", "itself"), "layers": StateKind("S B L D", "itself"),
            "distance": StateKind("P", "cell"),
        }
        self.reset_parameters()

    @property
    def token_tables(self) -> dict[str, nn.Embedding]:
        """The table of entities and relations."""
        return {"tokens": self.embeddings}

    @property
    def layer_state_count(self) -> int:
        """The vectors."""
        return 1

    def depth_groups(self) -> list[nn.Module]:
        """The table."""
        return [self.embeddings]

    def reset_parameters(self) -> None:
        """Redraw every vector from torch's generator; relations have length 1."""
        bound = 6 / math.sqrt(self.width)
        nn.init.uniform_(self.embeddings.weight, -bound, bound)
        if self.unit != "free":
            with torch.no_grad():
                self.embeddings.weight.copy_(F.normalize(self.embeddings.weight, dim=1))

    def forward(self, *, want: frozenset[str], tokens: Tensor) -> dict[str, Tensor]:
        """The wanted states of triples (B, 3)."""
        if tokens.shape[1] != 3:
            raise RecipeError(
                f"graph_vectors reads triples, rows of head, relation and tail, and no texts; got rows of {tokens.shape[1]}.\n"
                "  In a recipe write `corpus: {triples: {}}`; for vectors of entities use cloze neighbours or cloze export."
            )
        if self.training and self.unit == "updated":
            self._shorten()
        hidden = self.rows(tokens)
        states: dict[str, Tensor] = {}
        if "hidden" in want:
            states["hidden"] = hidden
        if "layers" in want:
            states["layers"] = hidden[None]
        if "distance" in want:
            head, relation, tail = hidden.unbind(1)
            states["distance"] = torch.linalg.vector_norm(head + relation - tail, ord=self.norm, dim=1)
        return states

    def rows(self, ids: Tensor) -> Tensor:
        """The vectors of ids, (…, D), as triples are measured with them."""
        rows = F.embedding(ids, self.embeddings.weight)
        if self.unit == "read":
            return F.normalize(rows, dim=-1)
        if self.unit == "updated" and not self.training:  # the last update has left their lengths a little off
            return torch.where((ids < self.first_relation)[..., None], F.normalize(rows, dim=-1), rows)
        return rows

    def vectors(self) -> Tensor:
        """The vector of every id, (V, D)."""
        with torch.no_grad():
            return self.rows(torch.arange(self.vocab_size, device=self.embeddings.weight.device))

    @torch.no_grad()
    def _shorten(self) -> None:
        """Divide the vectors of entities by their lengths."""
        entities = own_weight(self.embeddings)[: int(self.first_relation)]
        entities.copy_(F.normalize(entities, dim=1))
