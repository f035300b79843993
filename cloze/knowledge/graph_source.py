"""What the sources of a knowledge graph share: their arguments, and the facts of one part of a store with wrong triples."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.sources.bound import BoundSource, split_documents
from cloze.corpus.sources.plan import Int64, Ordering
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.triple_store import TripleStore
from cloze.knowledge.negatives import Corruption, Negatives


class GraphSource(Source):
    """The base class of sources that read the facts of a graph, each with `negatives`, in rows of at most `length` tokens."""

    builds_store: ClassVar[bool] = True
    of_rows = frozenset({"length", "negatives"})

    def __init__(self, *, negatives: Negatives, length: Count | None) -> None:
        self.negatives, self.length = negatives, length


class BoundGraph(BoundSource[Ordering]):
    """The base class of such a source over one store, seed and entry: `facts` (N,) are the triples of its part."""

    store: TripleStore

    def __init__(self, source: GraphSource, store: TripleStore, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        parts = split_documents(len(store.triples), self.held_out)
        self.facts = parts[self.part]
        self._known = parts["train"] if self.part == "train" else np.arange(len(store.triples))

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
