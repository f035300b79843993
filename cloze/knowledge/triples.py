"""The source of triples, each fact of a graph with wrong triples made from it; and what the sources of texts share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.sources.bound import BoundSource, split_documents
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64, Ordering
from cloze.corpus.stores.graph import Graph
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.corpus.stores.triple_store import TripleStore, TripleWriter
from cloze.errors import CorpusError, Say, counted, propose
from cloze.knowledge.negatives import Corruption, Negatives
from cloze.knowledge.triple_files import read_graph
from cloze.registry import register
from cloze.text.normalise import Normalise
from cloze.text.words import Words

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


_UNKNOWN = {"[UNK]": "[UNK]"}
_FIRST = 1  # the token of the first entity: [UNK] is 0


class GraphSource(Source):
    """The base class of sources that read the facts of a graph, each with `negatives`, in rows of at most `length` tokens."""

    builds_store: ClassVar[bool] = True
    of_rows = frozenset({"length", "negatives"})

    def __init__(self, *, negatives: Negatives, length: Count | None) -> None:
        self.negatives, self.length = negatives, length


@register("source", "triples")
class Triples(GraphSource):
    """The facts of a knowledge graph: a graph's folder, or files of head, relation and tail.

    negatives: wrong triples that go with every fact.

    Every row is a triple as three tokens: head, relation, tail. The fact comes first and its negatives follow; `owner` is the
    number of the fact that a row belongs to. The vocabulary is [UNK], the entities, then the relations; a relation that has the
    id of an entity is spelled `relation:ID`.
    """

    own_vocabulary: ClassVar[bool] = True
    gives = frozenset({"tokens", "length", "owner", "document"})

    def __init__(self, *, negatives: Negatives | None = None, length: Count | None = 3) -> None:
        super().__init__(negatives=Negatives() if negatives is None else negatives, length=length)

    def knowing(self, paths: Sequence[str | Path], tokenizer: Tokenizer | None) -> Tokenizer | None:
        """The tokenizer for the text; None: that of the graph's own ids."""
        return tokenizer

    def build_store(
        self, paths: Sequence[str | Path], tokenizer: Tokenizer | None, out: Path, *, base: Store | None, report: Say
    ) -> TripleStore:
        """Write a graph as a store at `out`. With `base`, the store of the training part, its entities and relations are used;
        an id that it lacks is a `CorpusError`."""
        graph = read_graph(paths)
        if not len(graph):
            raise CorpusError(f"{' '.join(map(str, paths))}: no triples.")
        graph_tokenizer = vocabulary(graph)
        if isinstance(base, TripleStore):
            graph, graph_tokenizer = _as_known(graph, base, paths), base.tokenizer()
        elif tokenizer is not None and tokenizer.hash != graph_tokenizer.hash:
            raise CorpusError(
                f"{' '.join(map(str, paths))}: its entities and relations are not those of the checkpoint or the tokenizer that "
                "was given.\n  A graph has its own vocabulary: omit --tokenizer, and --init of a run on another graph."
            )
        with TripleWriter(out, graph_tokenizer, graph) as writer:
            writer.add_names(np.arange(_FIRST, graph_tokenizer.size))
            store = writer.close()
        report(f"{' '.join(map(str, paths))}: {described(graph)}")
        return store

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundTriples:
        """This source over one store. Raises `CorpusError` if it holds no triples."""
        if not isinstance(store, TripleStore):
            raise CorpusError(
                f"{store.path}: this store holds text, not triples.\n"
                "  Give a graph: cloze corpus build FACTS.tsv --format triples --out GRAPH"
            )
        return BoundTriples(self, store, **address)


def described(graph: Graph) -> str:
    """A graph in one line."""
    repeats = int(graph.report.get("repeats", 0))
    counts = [counted(len(graph), "triple"), f"{len(graph.entities):,} entities", counted(len(graph.relations), "relation")]
    return ", ".join(counts) + (f" ({repeats:,} repeats left out)" if repeats else "")


def vocabulary(graph: Graph) -> Tokenizer:
    """The tokenizer of a graph's ids: [UNK], the entities, the relations."""
    entities = set(graph.entities)
    relations = [f"relation:{name}" if name in entities or name in _UNKNOWN else name for name in graph.relations]
    names = [*graph.entities, *relations]
    if len(set(names) | _UNKNOWN.keys()) < len(names) + len(_UNKNOWN):
        seen = set(_UNKNOWN)
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise CorpusError(f"the id {twice!r} names two things of the graph. Give one of them another id.")
    plain = Normalise(lower=False, strip_accents=False, cjk_spacing=False, clean=False)
    return Words(min_count=1, split="whitespace", special=_UNKNOWN).of_words(names, plain)


def _as_known(graph: Graph, base: TripleStore, paths: Sequence[str | Path]) -> Graph:
    """The graph with the numbers of the training part."""
    spelled = base.tokenizer().spellings[_FIRST:]
    entities, relations = spelled[: base.entities], tuple(name.removeprefix("relation:") for name in spelled[base.entities :])
    numbers = {"entity": {n: k for k, n in enumerate(entities)}, "relation": {n: k for k, n in enumerate(relations)}}
    moved = []
    for kind, names in (("entity", graph.entities), ("relation", graph.relations)):
        of = numbers[kind]
        unknown = [name for name in names if name not in of]
        if unknown:
            raise CorpusError(
                f"{' '.join(map(str, paths))}: the {kind} {unknown[0]!r} is not in the training part ({len(unknown):,} such). "
                f"{propose(unknown[0], of)}\n  A held-out triple needs entities and relations that are trained: remove it."
            )
        moved.append(np.array([of[name] for name in names], np.int32))
    entity, relation = moved
    triples = np.stack([entity[graph.triples[:, 0]], relation[graph.triples[:, 1]], entity[graph.triples[:, 2]]], axis=1)
    return Graph(tuple(entities), relations, triples, report=graph.report)


class BoundGraph(BoundSource[Ordering]):
    """The base class of such a source over one store, seed and entry: `facts` (N,) are the triples of its part."""

    store: TripleStore

    def __init__(self, source: GraphSource, store: TripleStore, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        parts = split_documents(len(store.triples), self.held_out)
        self.facts = parts[self.subset]
        self._known = parts["train"] if self.subset == "train" else np.arange(len(store.triples))

    @cached_property
    def corruption(self) -> Corruption:
        """Draws the negatives of the facts of this part, by their place among the known ones."""
        triples = self.store.triples[self._known].astype(np.int64) - np.array([0, self.store.entities, 0])
        return Corruption(
            self.source.negatives, triples, entities=self.store.entities, relations=self.store.relations,
            path=str(self.store.path),
        )

    def replaced(self, places: Int64, draw: rng.Draw) -> tuple[NDArray[np.bool_], Int64]:
        """The negatives of facts, by their place in this part: (B, K) whether each replaces the head, and by which entity."""
        return self.corruption.entities_for(self.facts[places] if self.subset == "held_out" else places, draw)


class BoundTriples(BoundGraph):
    """Rows that are triples of ids."""

    @property
    def tokens(self) -> int:
        """Tokens of the facts of this part."""
        return 3 * len(self.facts)

    @property
    def width(self) -> int:
        """How many rows each fact makes."""
        return 1 + self.source.negatives.count

    def make_plan(self, epoch: int, max_tokens: int) -> Ordering:
        """The facts of one epoch."""
        return Ordering(epoch, max_tokens, self.shuffled(len(self.facts), epoch))

    def widths(self, plan: Ordering, items: Int64) -> Int64:
        """How many rows each item of a plan makes, (B,)."""
        return np.full(len(items), self.width, np.int64)

    def read_main(self, plan: Ordering, items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B · width, 3) int32, a fact and then its negatives, `length` 3, `owner` the item
        of a row and `document` its fact."""
        fact = self.facts[plan.order[items]]
        triples = np.repeat(self.store.triples[fact][:, None], self.width, axis=1)
        if self.width > 1:
            replaces_head, entity = self.replaced(plan.order[items], self.draw(plan, items))
            triples[:, 1:, 0] = np.where(replaces_head, entity, triples[:, 1:, 0])
            triples[:, 1:, 2] = np.where(replaces_head, triples[:, 1:, 2], entity)
        rows = len(items) * self.width
        return {
            "tokens": (triples.reshape(rows, 3) + np.int32(_FIRST)).astype(np.int32), "length": np.full(rows, 3, np.int32),
            "owner": np.repeat(np.arange(len(items)), self.width), "document": np.repeat(fact, self.width),
        }  # fmt: skip

    def address(self, plan: Ordering, items: Int64) -> Int64:
        """The number of each fact in the store."""
        return self.facts[plan.order[items]]
