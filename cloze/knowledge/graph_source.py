"""What the sources of a knowledge graph share: their arguments, and the facts of one part of a store with wrong triples."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.sources.passages import split_documents
from cloze.corpus.sources.plan import Int64
from cloze.corpus.stores.source import Source
from cloze.corpus.stores.triple_store import TripleStore
from cloze.knowledge.negatives import Corruption, Negatives

Part = Literal["train", "held_out"]


class GraphSource(Source):
    """The base class of sources that read the facts of a graph, each with `negatives`, in rows of at most `length` tokens."""

    builds_store: ClassVar[bool] = True
    of_rows = frozenset({"length", "negatives"})

    def __init__(self, *, negatives: Negatives, length: Count | None) -> None:
        self.negatives, self.length = negatives, length


class BoundGraph:
    """The base class of such a source over one store, seed and entry: `facts` (N,) are the triples of its part."""

    def __init__(self, source: GraphSource, store: TripleStore, *, seed: int, entry: str, held_out: float, part: Part) -> None:
        self.source, self.store, self.seed, self.entry, self.part = source, store, seed, entry, part
        parts = split_documents(len(store.triples), held_out)
        self.facts = parts[part]
        self._known = parts["train"] if part == "train" else np.arange(len(store.triples))
        self._plans: OrderedDict[Any, Any] = OrderedDict()

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        return self.source.gives

    @cached_property
    def corruption(self) -> Corruption:
        """Draws the negatives of the facts of this part, by their place among the known ones."""
        triples = self.store.triples[self._known].astype(np.int64) - np.array([0, self.store.entities, 0])
        return Corruption(
            self.source.negatives, triples, entities=self.store.entities, relations=self.store.relations,
            place=str(self.store.path),
        )

    def replaced(self, places: Int64, draw: rng.Draw) -> tuple[NDArray[np.bool_], Int64]:
        """The negatives of facts, by their place in this part: (B, K) whether each replaces the head, and by which entity."""
        return self.corruption.entities_for(self.facts[places] if self.part == "held_out" else places, draw)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "corruption"}
