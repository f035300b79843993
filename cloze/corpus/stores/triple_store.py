"""The store of triples: a token store whose documents are the texts of a graph's entities and relations.

In addition to the files of every token store (see `corpus/stores/store.py`) it has

    triples.bin     int32, (N, 3): the documents of head, relation and tail

Documents 0 … entities - 1 are the entities in their order, the relations follow. The header's `graph` holds both numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.graph import Graph
from cloze.corpus.stores.store import Store, mapped, opened_before
from cloze.corpus.stores.writer import HashedFile, StoreWriter, saving
from cloze.errors import CorpusError, RunError
from cloze.text.tokenizer import Tokenizer

TRIPLES = "triples.bin"
_TOGETHER = 1 << 16  # texts encoded, and triples written, at a time


class TripleStore(Store, holds="graph"):
    """A memory-mapped store of triples and of the texts of what they are about."""

    shortest_text = 0

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        super().__init__(path, header)
        about = header["graph"]
        self.entities, self.relations = int(about["entities"]), int(about["relations"])
        self.triples: NDArray[np.int32] = mapped(path / TRIPLES, np.dtype(np.int32)).reshape(-1, 3)

    @property
    def relation_ids(self) -> list[str]:
        """The ids of the relations in their order, where the store holds texts; else empty: its vocabulary has them."""
        return list(self.header["graph"].get("relation_ids", ()))

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return opened_before, (self.path,)

    def mixture_size(self, batch: int) -> int:
        """The number of batches of its triples, including a last partial one: its size in a mixture."""
        return -(-len(self.triples) // batch)

    def _check_ends(self) -> None:
        super()._check_ends()
        names = self.entities + self.relations
        if self.documents != names or self.sentences != names:
            raise CorpusError(f"{self.path}: {self.documents:,} texts for {names:,} entities and relations. Build it again.")

    def _check_content(self) -> None:
        super()._check_content()
        limits = ((0, self.entities), (self.entities, self.documents), (0, self.entities))
        for column, (low, high) in enumerate(limits):
            numbers = self.triples[:, column]
            if len(numbers) and (int(numbers.min()) < low or int(numbers.max()) >= high):
                raise CorpusError(
                    f"{self.path / TRIPLES}: damaged; column {column} holds numbers outside of {low:,} … {high - 1:,}.\n"
                    "  Build it again."
                )


class TripleWriter(StoreWriter):
    """Writes a graph as a store."""

    def __init__(self, out: str | Path, tokenizer: Tokenizer, graph: Graph) -> None:
        super().__init__(out, vocab_size=tokenizer.size, roles=tokenizer.roles, tokenizer_hash=tokenizer.hash)
        self.tokenizer, self.graph = tokenizer, graph
        self.header["graph"] = {"entities": len(graph.entities), "relations": len(graph.relations)}
        self._files[TRIPLES] = HashedFile(self.folder / TRIPLES)

    def add_names(self, ids: NDArray[np.integer]) -> None:
        """Every entity and relation as a text of one token, (documents,)."""
        ones = np.ones(len(ids), np.int64)
        self.append(ids, np.ones(len(ids), np.bool_), ones, ones)

    def add_texts(self) -> None:
        """The texts of the graph as the tokenizer encodes them; none has fewer than one token."""
        texts = self.graph.texts
        for low in range(0, len(texts), _TOGETHER):
            ids, starts, offsets = self.tokenizer.encode_flat(texts[low : low + _TOGETHER])
            sizes = np.diff(offsets)
            self.append(ids, starts, sizes, np.ones(len(sizes), np.int64))

    def close(self) -> TripleStore:
        """Write the triples and finish the store."""
        shift = np.array([0, len(self.graph.entities), 0], np.int32)
        for low in range(0, len(self.graph), _TOGETHER):
            self._files[TRIPLES].write(self.graph.triples[low : low + _TOGETHER] + shift)
        try:
            store = self.finish({"triples": len(self.graph), "tokens": self.tokens}, saving(self.tokenizer))
        except OSError as error:
            raise RunError(f"{self.out}: cannot write the store: {error.strerror}. Nothing was written.") from error
        assert isinstance(store, TripleStore)
        return store
