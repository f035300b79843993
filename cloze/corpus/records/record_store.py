"""The store of records: a token store in which a document is a record and a sentence one of its texts.

In addition to the files of every token store (see `corpus/stores/store.py`) it has

    records/lines.bin         int64, the line in its file where each record begins
    records/<column>.bin      the stored answers: one value per record, or several
    records/bounds.bin        int64, where each record's values begin, then their number; only if records have several
    records/<level>.bin       int64, the same for the items of a nested level: where those of each item of the level above begin
    items/                    the items of the records' pictures, if they have any: see corpus/items/item_store.py

The header's `records` lists the columns that were read, the kind of answer, its classes, and the files. A text may have no
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items.item_store import StoredItems
from cloze.corpus.sources.bound import split_documents
from cloze.corpus.stores.store import Store, mapped, opened_before
from cloze.errors import CorpusError

Int64 = NDArray[np.int64]
FOLDER = "records/"
LINES, BOUNDS = f"{FOLDER}lines.bin", f"{FOLDER}bounds.bin"


class RecordStore(Store, holds="records"):
    """A memory-mapped store of records."""

    shortest_text = 0

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        super().__init__(path, header)
        self.about: Mapping[str, Any] = header["records"]
        self.lines: Int64 = mapped(path / LINES, np.dtype(np.int64))
        self.columns: Mapping[str, NDArray[Any]] = {
            name: mapped(path / f"{FOLDER}{name}.bin", np.dtype(kind)) for name, kind in self.about["columns"].items()
        }
        flat = ("bounds",) if BOUNDS in header["files"] else ()
        nested = self.about.get("nested", {})
        #: Of every column, the levels of its values: each is the name of the array in `offsets` that delimits it.
        self.levels: Mapping[str, tuple[str, ...]] = {name: tuple(nested.get(name, flat)) for name in self.columns}
        self.offsets: Mapping[str, Int64] = {
            level: mapped(path / f"{FOLDER}{level}.bin", np.dtype(np.int64))
            for level in dict.fromkeys(chain.from_iterable(self.levels.values()))
        }
        self.bounds: Int64 | None = self.offsets.get("bounds")
        self.items: StoredItems | None = StoredItems(path, header["items"]) if "items" in header else None

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return opened_before, (self.path,)

    @property
    def texts(self) -> int:
        """The number of text columns."""
        return len(self.about["texts"])

    @property
    def stored(self) -> Mapping[str, NDArray[Any]]:
        """The columns, and the arrays that delimit their values."""
        return {**self.columns, **self.offsets}

    @property
    def lists(self) -> bool:
        """Whether the last text column holds a list of texts in each record."""
        return bool(self.about.get("lists", False))

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the answers, in the order of their numbers; empty if answers are not classes."""
        return tuple(self.about["classes"] or ())

    def split(self, held_out: float) -> dict[str, Int64]:
        """The records of the parts `train` and `held_out` (`split_documents`); those of one picture or film are in one part."""
        if self.items is None:
            return split_documents(self.documents, held_out)
        together = self.items.groups[self.items.pictures]
        parts = split_documents(int(together.max(initial=-1)) + 1, held_out)
        return {name: np.flatnonzero(np.isin(together, groups)) for name, groups in parts.items()}

    def mixture_size(self, batch: int) -> int:
        """The number of batches of its rows, including a last partial one: its size in a mixture."""
        return -(-self.documents // batch)

    @property
    def lengths(self) -> Int64:
        """The number of tokens of every text, (records, texts); 0 for texts that a record with a shorter list does not have."""
        sizes = np.diff(self.sentence_starts)
        if not self.lists:
            return sizes.reshape(-1, self.texts)
        counts = np.diff(self.document_sentences)
        record = np.repeat(np.arange(len(counts)), counts)
        lengths = np.zeros((len(counts), int(counts.max(initial=1))), np.int64)
        lengths[record, np.arange(len(sizes)) - self.document_sentences[record]] = sizes
        return lengths

    @property
    def row_sizes(self) -> Int64:
        """The number of tokens of every record, (records,). Of a list, only the longest text counts."""
        lengths = self.lengths
        if not self.lists:
            return lengths.sum(1)
        return lengths[:, : self.texts - 1].sum(1) + lengths[:, self.texts - 1 :].max(1, initial=0)

    def cut(self, row: int, text: int | None = None) -> int:
        """How many records lose tokens in rows of `row` tokens, or, if each text has its own row, in rows with room for `text`
        tokens."""
        lost = self.row_sizes > row if text is None else (self.lengths > text).any(1)
        return int(lost.sum())

    def begins(self, records: Int64, texts: int) -> Int64:
        """The first token of each text of some records, (B, texts); undefined for texts that a record does not have."""
        text = self.document_sentences[records][:, None] + np.arange(texts)
        return self.sentence_starts[np.minimum(text, len(self.sentence_starts) - 1)]

    def answers(self, records: Int64) -> dict[str, NDArray[Any]]:
        """The stored answers of some records: (B,), or padded with -1 and with an axis for each level, (B, K), (B, K, J), …"""
        items = {levels: self._items(records, levels) for levels in dict.fromkeys(self.levels.values())}
        answers = {}
        for name, column in self.columns.items():
            index, inside = items[self.levels[name]]
            answers[name] = column[index] if inside is None else np.where(inside, column[index], -1)
        return answers

    def _items(self, records: Int64, levels: tuple[str, ...]) -> tuple[Int64, NDArray[np.bool_] | None]:
        """Which items of the last level some records have: their numbers with an axis for each level, and where there are any;
        None if there are no levels."""
        index, inside = records, None
        for level in levels:
            bounds = self.offsets[level]
            begin, count = bounds[index], bounds[index + 1] - bounds[index]
            count = count if inside is None else np.where(inside, count, 0)
            places = np.arange(int(count.max(initial=0)))
            inside = places < count[..., None]
            index = np.where(inside, begin[..., None] + places, 0)
        return index, inside

    def _check_ends(self) -> None:
        super()._check_ends()
        sizes = {"lines": (len(self.lines), self.documents)}
        if not self.lists:
            sizes["texts"] = self.sentences, self.documents * self.texts
        for column, levels in self.levels.items():
            items = self.documents
            for level in levels:
                bounds = self.offsets[level]
                sizes[level] = len(bounds), items + 1
                items = int(bounds[-1]) if len(bounds) else -1
            sizes[column] = len(self.columns[column]), items
        for name, (has, wants) in sizes.items():
            if has != wants:
                raise CorpusError(f"{self.path}: {FOLDER}{name} has {has:,} entries, expected {wants:,}. Build it again.")
        if self.items is not None:
            self.items.check(self.documents)
