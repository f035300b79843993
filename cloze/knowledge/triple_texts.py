"""The sources of a graph whose entities and relations are read as texts: rows that are triples, or rows that are entities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.records.windows import cut
from cloze.corpus.sources.bound import fields_in, require_tokens
from cloze.corpus.sources.gather import Arrays, Gatherer
from cloze.corpus.sources.plan import Int64, Ordering, Split
from cloze.corpus.stores.graph import Graph
from cloze.corpus.stores.source import Address
from cloze.corpus.stores.store import Store
from cloze.corpus.stores.triple_store import TripleStore, TripleWriter
from cloze.errors import CorpusError, RecipeError, Say, propose
from cloze.knowledge.negatives import Negatives
from cloze.knowledge.triple_files import read_graph
from cloze.knowledge.triples import BoundGraph, GraphSource, described
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


_FIELDS = ("tokens", "length", "word_start")
_SIDES = ("", "relation.", "tail.")


class _Texts(GraphSource):
    """What both sources share: a graph becomes a store of the texts of its entities and relations."""

    keeps_empty = True
    new_relations = False  # whether a held-out fact may have a relation that is not trained

    def texts(self, paths: Sequence[str | Path]) -> Iterable[str]:
        """The texts that a tokenizer is trained on if none is given."""
        return read_graph(paths).texts

    def knowing(self, paths: Sequence[str | Path], tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer for the texts."""
        return tokenizer

    def build_store(
        self, paths: Sequence[str | Path], tokenizer: Tokenizer, out: Path, *, base: Store | None, report: Say
    ) -> TripleStore:
        """Write a graph and its texts as a store at `out`. With `base`, the store of the training part, relations have its
        numbers; a relation that it lacks is a `CorpusError`, and so are ids without texts where it has texts."""
        where = " ".join(map(str, paths))
        graph = read_graph(paths)
        if not len(graph):
            raise CorpusError(f"{where}: no triples.")
        if isinstance(base, TripleStore) and not self.new_relations:
            graph = _with_relations_of(graph, base, where)
        with TripleWriter(out, tokenizer, graph) as writer:
            writer.header["graph"] |= {"relation_ids": list(graph.relations), "texts": graph.entity_texts is not None}
            writer.add_texts()
            store = writer.close()
        without = sum(not text for text in graph.entity_texts or ()) if graph.entity_texts else len(graph.entities)
        read_as = f"; {without:,} entities have no text and are read as their ids" if without else ""
        report(f"{where}: {described(graph)}{read_as}")
        return store

    def _facts(self, store: Store) -> TripleStore:
        if not isinstance(store, TripleStore) or not store.relation_ids:
            raise CorpusError(
                f"{store.path}: this store does not hold the texts of a graph.\n  Give a graph: "
                "cloze corpus build FACTS.tsv --format triples --entities ENTITIES.tsv --relations RELATIONS.tsv --out GRAPH"
            )
        return store


@register("source", "triple_texts")
class TripleTexts(_Texts):
    """The facts of a knowledge graph as texts, one triple per row, for KG-BERT: a graph's folder, or files of triples.

    negatives: wrong triples that go with every fact; each is a separate row, anywhere in the epoch.
    length: the length of the network's input; phases may set it instead. The longest text of a row loses its end.

    The row is the text of the head, its companions `relation` and `tail` are the others. `column/fact` is 1 for a fact and 0 for
    a wrong triple, `column/relation` the number of the relation. An entity or relation without a text is read as its id.
    """

    gives = frozenset({*(f"{side}{name}" for side in _SIDES for name in _FIELDS), "column/fact", "column/relation", "document"})

    def __init__(self, *, negatives: Negatives | None = None, length: Count | None = None) -> None:
        super().__init__(negatives=Negatives(one_side=1) if negatives is None else negatives, length=length)

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundTripleTexts:
        """This source over one store. Raises `CorpusError` if it does not hold the texts of a graph."""
        return BoundTripleTexts(self, self._facts(store), **address)


@register("source", "entity_texts")
class EntityTexts(_Texts):
    """The facts of a knowledge graph as texts of entities, one entity per row, for KEPLER: a graph's folder, or files of triples.

    negatives: wrong triples that go with every fact, each with another head or another tail.
    length: the length of the network's input; phases may set it instead.
    relation_texts: one more row for every fact, the last, with the text of its relation.
    conditioned: two more rows for every fact, the last: head and tail again, with the text of the relation as the companion
        `relation`, which is empty in all other rows (KEPLER-Cond). The longer text of a row loses its end.

    Every fact makes a row for its head, one for its tail and one for each entity that replaces them; `owner` is the fact of a
    row. `triple` (B, 3) holds the fact in the first row of its owner and the wrong triples in the next ones: which row of the
    owner is the head, the number of the relation, and which row is the tail; -1 in the rows left. If `conditioned`, two rows hold
    the fact, first with the head and then with the tail that is read with the relation, as are the entities that stay in wrong
    triples. With `relation_texts`, `relation_row` (B,) is the row of the relation's text for each triple. An entity or relation
    without a text is read as its id.
    """

    gives = frozenset({*_FIELDS, "owner", "triple", "document"})

    def __init__(
        self, *, negatives: Negatives | None = None, length: Count | None = None, relation_texts: bool = False,
        conditioned: bool = False,
    ) -> None:
        super().__init__(negatives=Negatives(head=1, tail=1) if negatives is None else negatives, length=length)
        if relation_texts and conditioned:
            raise RecipeError("entity_texts: relation_texts and conditioned are two uses of the same texts. Choose one.")
        self.relation_texts = self.new_relations = relation_texts
        self.conditioned = conditioned
        if conditioned:
            self.gives = self.gives | {f"relation.{name}" for name in _FIELDS}
            self.keeps_empty = False
        if relation_texts:
            self.gives = self.gives | {"relation_row"}
        if self.negatives.count < 1:
            raise RecipeError("entity_texts.negatives: none; expected at least one, such as negatives: {head: 1, tail: 1}.")

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundEntityTexts:
        """This source over one store. Raises `CorpusError` if it does not hold the texts of a graph."""
        return BoundEntityTexts(self, self._facts(store), **address)


def _with_relations_of(graph: Graph, base: TripleStore, where: str) -> Graph:
    """The graph with the training part's numbers of relations."""
    about = base.header["graph"]
    if about["texts"] and graph.entity_texts is None:
        raise CorpusError(
            f"{where}: the entities of the training part have texts, and these have none.\n  Give a graph with texts: "
            f"cloze corpus build {where} --format triples --entities ENTITIES.tsv --relations RELATIONS.tsv --out GRAPH"
        )
    numbers = {name: number for number, name in enumerate(base.relation_ids)}
    unknown = [name for name in graph.relations if name not in numbers]
    if unknown:
        raise CorpusError(
            f"{where}: the relation {unknown[0]!r} is not in the training part ({len(unknown):,} such). "
            f"{propose(unknown[0], numbers)}\n  A held-out triple needs a relation that is trained: remove it."
        )
    triples = graph.triples.copy()
    triples[:, 1] = np.array([numbers[name] for name in graph.relations], np.int32)[graph.triples[:, 1]]
    texts = dict(zip(graph.relations, graph.relation_texts or graph.relations, strict=True))
    return Graph(
        graph.entities, tuple(numbers), triples, graph.entity_texts, tuple(texts.get(name, "") for name in numbers), graph.report
    )


class _BoundTexts(BoundGraph):
    """Rows of texts, whatever they consist of."""

    def __init__(self, source: _Texts, store: TripleStore, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self._gather = Gatherer(store, Split.of(store, np.zeros(0, np.int64), joined=False, separated=False), None)

    @property
    def tokens(self) -> int:
        """Tokens of the facts of this part, each text counted wherever it occurs."""
        sizes = np.diff(self.store.document_starts)
        return int(sizes[self.store.triples[self.facts]].sum())

    @property
    def rows_of_fact(self) -> int:
        """How many items of a plan each fact is."""
        return 1

    def make_plan(self, epoch: int, max_tokens: int) -> Ordering:
        """The rows of one epoch, or the facts that make several, in random order."""
        require_tokens("a graph's texts", max_tokens, 3, "a triple needs 3")
        return Ordering(epoch, max_tokens, self.shuffled(len(self.facts) * self.rows_of_fact, epoch))

    def address(self, plan: Ordering, items: Int64) -> Int64:
        """A number that identifies each item whatever part it is in."""
        places, width = plan.order[items], self.rows_of_fact
        return self.facts[places // width] * width + places % width

    def _corrupted(self, plan: Ordering, places: Int64) -> tuple[NDArray[np.bool_], Int64]:
        """The negatives of facts in the epoch of a plan, as `replaced` gives them."""
        return self.replaced(
            places, rng.Draw(rng.row_keys(self.seed, self.entry, plan.epoch, "negatives", items=self.facts[places]))
        )

    def _texts(self, documents: Int64, most: Int64, want: frozenset[str]) -> Arrays:
        """The texts of entities and relations (B,), cut to `most` tokens each (B,)."""
        starts = self.store.document_starts
        length = np.minimum(starts[documents + 1] - starts[documents], most)
        return self._gather.spans(starts[documents], length, documents, documents, want)


class BoundTripleTexts(_BoundTexts):
    """Rows that are triples."""

    @property
    def rows_of_fact(self) -> int:
        """The fact and its wrong triples."""
        return 1 + self.source.negatives.count

    def read_main(self, plan: Ordering, items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B, L) int32, `length` and `document` (B) of the head; `column/fact` (B) int32; if wanted, `word_start`; and
        the same of the others under `relation.` and `tail.`. Those that are wanted have together at most `max_tokens`."""
        position, nth = np.divmod(plan.order[items], self.rows_of_fact)
        triple = self.store.triples[self.facts[position]].astype(np.int64)
        wrong = np.flatnonzero(nth)
        if len(wrong):
            replaces_head, entity = self._corrupted(plan, position[wrong])
            index = np.arange(len(wrong)), nth[wrong] - 1
            triple[wrong, np.where(replaces_head[index], 0, 2)] = entity[index]
        wanted = [fields_in(side.rstrip("."), want) if side else want for side in _SIDES]
        read = [not side or bool(names) for side, names in zip(_SIDES, wanted, strict=True)]
        sizes = np.diff(self.store.document_starts)[triple] * read  # what is not read takes no room from the others
        _, parts = cut(sizes, plan.max_tokens)
        arrays: Arrays = {}
        for column, (side, names) in enumerate(zip(_SIDES, wanted, strict=True)):
            side_arrays = self._texts(triple[:, column], parts.kept[:, column], names)
            arrays |= {f"{side}{name}": value for name, value in side_arrays.items() if side == "" or name != "document"}
        arrays["document"] = self.facts[position]
        arrays["column/fact"] = (nth == 0).astype(np.int32)
        arrays["column/relation"] = (triple[:, 1] - self.store.entities).astype(np.int32)
        return arrays


class BoundEntityTexts(_BoundTexts):
    """Rows that are entities."""

    source: EntityTexts

    @property
    def width(self) -> int:
        """How many rows each fact makes: head, tail, the entities that replace them, head and tail with its relation if they are
        conditioned, and its relation if that is read alone."""
        return 2 + self.source.negatives.count + 2 * self.source.conditioned + self.source.relation_texts

    def widths(self, plan: Ordering, items: Int64) -> Int64:
        """How many rows each item of a plan makes, (B,)."""
        return np.full(len(items), self.width, np.int64)

    def read_main(self, plan: Ordering, items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B · width, L) int32, `length`, `document`, `owner` (the item of a row), `triple` (B · width, 3) int32, with
        `relation_texts` `relation_row`, if `conditioned` the companion `relation`, and, if wanted, `word_start`."""
        conditioned = self.source.conditioned
        position, count, width = plan.order[items], self.source.negatives.count, self.width
        fact = self.store.triples[self.facts[position]].astype(np.int64)
        replaces_head, entity = self._corrupted(plan, position)
        further = [0, 2] * conditioned + [1] * self.source.relation_texts
        texts = np.concatenate([fact[:, [0, 2]], entity, fact[:, further]], axis=1)
        triple = np.full((len(items), width, 3), -1, np.int32)
        new, wrong = np.arange(2, 2 + count), slice(1 + conditioned, 1 + conditioned + count)
        head, tail = (width - 2, width - 1) if conditioned else (0, 1)  # with the relation, if they are conditioned
        triple[:, : wrong.stop, 1] = (fact[:, 1] - self.store.entities)[:, None]
        triple[:, 0, [0, 2]] = head, 1
        if conditioned:
            triple[:, 1, [0, 2]] = 0, tail
        triple[:, wrong, 0] = np.where(replaces_head, new, head)
        triple[:, wrong, 2] = np.where(replaces_head, tail, new)
        rows = texts.reshape(-1)
        if conditioned:
            read = np.arange(len(rows)) % width >= head
            arrays = self._conditioned(rows, np.repeat(fact[:, 1], width), read, plan.max_tokens, want)
        else:
            arrays = self._texts(rows, np.full(len(rows), plan.max_tokens), want)
        arrays |= {"document": np.repeat(self.facts[position], width), "owner": np.repeat(np.arange(len(items)), width)}
        if self.source.relation_texts:
            arrays["relation_row"] = np.where(triple[:, :, 0] >= 0, np.int32(width - 1), np.int32(-1)).reshape(-1)
        return arrays | {"triple": triple.reshape(-1, 3)}

    def _conditioned(
        self, entities: Int64, relations: Int64, read: NDArray[np.bool_], max_tokens: int, want: frozenset[str]
    ) -> Arrays:
        """The texts of entities (B,), and as companions those of relations (B,), empty where they are not `read` (B,)."""
        sizes = np.diff(self.store.document_starts)
        _, parts = cut(np.stack([sizes[entities], np.where(read, sizes[relations], 0)], axis=1), max_tokens)
        companion = self._texts(relations, parts.kept[:, 1], fields_in("relation", want))
        arrays = self._texts(entities, parts.kept[:, 0], want)
        return arrays | {f"relation.{name}": value for name, value in companion.items() if name != "document"}
