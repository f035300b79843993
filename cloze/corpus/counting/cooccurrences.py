"""The source of co-occurrences: how often words occur near each other, counted once and read cell by cell."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import kernels
from cloze.bounds import Count
from cloze.corpus.counting.cells import VERSION, CellPlan, CellWriter, CooccurrenceCells
from cloze.corpus.counting.pair_counting import counted, threads_here
from cloze.corpus.counting.word_chunks import Unit, chunks, number_of_words
from cloze.corpus.sources.bound import BoundSource, documents_of_running_text
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register

Weight = Literal["inverse_distance", "flat", "linear"]
_FIELDS = frozenset({"tokens", "length", "cell", "cell_count"})
_BLOCK = 1 << 18  # pairs turned into cells at a time


@register("source", "cooccurrences")
class Cooccurrences(Source):
    """The non-zero cells of a word-by-word co-occurrence matrix, one per row (GloVe's `cooccur.c`; PPMI's counts).

    Words at most `radius` apart count 1/d at distance d (`inverse_distance`, GloVe), 1 (`flat`) or (radius + 1 - d) / radius
    (`linear`, what shrinking windows count on average). `symmetric`: a pair counts for both words, so a word next to
    itself counts twice; otherwise only the first word of a pair is a context of the second. Windows end at documents or
    sentences (`unit`). Special tokens, including [UNK], are removed first and leave no gap.

    `memory`: megabytes that counting may use in all threads together, for tables, sorting and the current text; the rest is
    spilled to disk and merged. It excludes the program itself (some 300 MB) and pages of the mapped store and cells, which the
    system can reclaim. The cells are counted once and saved in the store's folder, under `cooccurrences/`, 12 bytes each. An
    epoch reads tiles of 1024 x 1024 words, in pieces of 16,384 cells, both in a new random order.

    Held-out cells are those of held-out documents, scaled by the ratio of words in both parts, so that losses are comparable.
    Differs: without `held_out` (as published) all documents are counted.
    """

    gives = _FIELDS

    def __init__(
        self, *, radius: Count = 15, weight: Weight = "inverse_distance", symmetric: bool = True, unit: Unit = "document",
        memory: Count = 2048, length: Count | None = 2,
    ) -> None:
        if radius < 1:
            raise RecipeError(f"cooccurrences.radius: {radius}; expected 1 or more words.")
        if weight not in ("inverse_distance", "flat", "linear"):
            raise RecipeError(f"cooccurrences.weight: {weight!r}; expected inverse_distance, flat or linear.")
        if unit not in ("document", "sentence"):
            raise RecipeError(f"cooccurrences.unit: {unit!r}; expected document or sentence.")
        if memory < 16:
            raise RecipeError(f"cooccurrences.memory: {memory} megabytes; counting needs 16 or more.")
        self.radius, self.weight, self.symmetric, self.unit, self.memory = radius, weight, symmetric, unit, memory
        self.length = length

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of a pair at distance 1, 2, …, (radius,)."""
        distance = np.arange(1, self.radius + 1, dtype=np.float64)
        if self.weight == "flat":
            return np.ones(self.radius)
        return 1 / distance if self.weight == "inverse_distance" else (self.radius + 1 - distance) / self.radius

    def bind(self, store: Store, **address: Unpack[Address]) -> BoundCooccurrences:
        """This source over one store; nothing is counted yet.

        Raises `CorpusError` if no two words of the training part are neighbours.
        """
        return BoundCooccurrences(self, store, **address)


class BoundCooccurrences(BoundSource[CellPlan]):
    """The cells of one store. `cells` are counted, or opened, on first use."""

    source: Cooccurrences

    def __init__(self, source: Cooccurrences, store: Store, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.documents = documents_of_running_text(store, self.held_out, self.subset)
        self.scale = 1.0
        if self.subset == "held_out" and len(self.documents):
            trained = number_of_words(store, documents_of_running_text(store, self.held_out, "train"))
            self.scale = trained / max(number_of_words(store, self.documents), 1)

    @property
    def tokens(self) -> int:
        """Words of this part of the corpus, without special tokens."""
        return self.cells.tokens

    @cached_property
    def cells(self) -> CooccurrenceCells:
        """The counted cells, loaded from the store's folder if they were counted before."""
        folder = self._folder()
        cells = CooccurrenceCells.open(folder) or self._count(folder)
        if self.subset == "train" and not len(cells):
            raise CorpusError(
                f"{self.store.path}: no two words of the corpus occur near each other in any {self.source.unit} "
                f"({cells.tokens:,} words in {self.store.documents:,} documents).\n  Use more text, or count by document."
            )
        return cells

    def make_plan(self, epoch: int, max_tokens: int) -> CellPlan:
        """The cells of one epoch, by pieces of tiles."""
        return CellPlan.of(self.cells.pieces, epoch, self.seed, self.entry)

    def read_main(self, plan: CellPlan, items: Int64, want: frozenset[str]) -> Arrays:
        """`cell` (B, 2) int32, `cell_count` (B,) float32; `tokens` (B, 2) are the cell's two words and `length` is 2."""
        at = plan.cells(items)
        cell = np.stack([self.cells.rows[at], self.cells.columns[at]], axis=1)
        count = self.cells.counts[at] * np.float32(self.scale)
        return {"tokens": cell, "length": np.full(len(items), 2, np.int32), "cell": cell, "cell_count": count}

    def _counted(self) -> dict[str, Any]:
        """Everything that the cells depend on."""
        source = self.source
        tokens = {name: self.store.header["files"][name]["sha256"] for name in ("tokens.bin", "sentences.bin", "documents.bin")}
        return {
            "files": tokens, "radius": source.radius, "weight": source.weight, "symmetric": source.symmetric,
            "unit": source.unit, "held_out": self.held_out, "subset": self.subset, "version": VERSION,
        }

    def _folder(self) -> Path:
        digest = hashlib.sha256(json.dumps(self._counted(), sort_keys=True).encode()).hexdigest()[:16]
        return self.store.path / "cooccurrences" / digest

    def _count(self, folder: Path) -> CooccurrenceCells:
        """Count into a folder that appears when all is written: in the store, or outside it if the store is read-only."""
        if not os.access(self.store.path, os.W_OK):
            folder = _own_folder() / folder.name
            cells = CooccurrenceCells.open(folder)
            if cells is not None:
                return cells
        folder.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=".counting-", dir=folder.parent))
        try:
            count_cells(self.source, self.store, self.documents, stage)
            shutil.rmtree(folder, ignore_errors=True)
            stage.rename(folder)
        except OSError as error:
            cells = CooccurrenceCells.open(folder)  # another process may have finished first
            if cells is not None:
                return cells
            raise CorpusError(
                f"{folder}: the co-occurrences cannot be written: {error.strerror or error}.\n"
                "  Counting needs about 12 bytes of disk per cell, and 16 more while it runs."
            ) from error
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        cells = CooccurrenceCells.open(folder)
        assert cells is not None
        return cells


def _own_folder() -> Path:
    """This user's folder for temporary files. Raises `CorpusError` if others could have put files there."""
    folder = Path(tempfile.gettempdir()) / f"cloze-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        kind = "a folder that other users can write to" if stat.S_ISDIR(status.st_mode) else "no folder"
        raise CorpusError(
            f"{folder}: is {kind}, expected a private folder of this user (co-occurrences are kept there, because the\n"
            "  store's folder cannot be written to). Remove it, or set TMPDIR to a folder of your own."
        )
    return folder


def count_cells(
    source: Cooccurrences, store: Store, documents: Int64, folder: Path, *, threads: int | None = None,
    compiled: bool | None = None,
) -> CooccurrenceCells:
    """Count the co-occurrences of these documents into `folder`, with `threads` threads where numba is installed.

    The cells do not depend on threads, memory or method, except for rounding of sums in double precision.
    """
    memory = source.memory << 20
    compiled = kernels.find("pairs") is not None if compiled is None else compiled
    runs = counted(
        chunks(store, documents, unit=source.unit, radius=source.radius, chunk=max(min(1 << 20, memory // 512), 1 << 10)),
        source.weights, vocab_size=store.vocab_size, symmetric=source.symmetric, memory=memory * 3 // 4, folder=folder,
        threads=threads or threads_here(), compiled=compiled,
    )
    header = {"radius": source.radius, "weight": source.weight, "symmetric": source.symmetric, "unit": source.unit,
              "tokens": number_of_words(store, documents), "spilled": bool(runs.spilled)}
    writer = CellWriter(folder, store.vocab_size, symmetric=source.symmetric, compiled=compiled)
    for keys, _ in runs.merged(_BLOCK):
        writer.tally(keys)
    for keys, sums in runs.merged(_BLOCK):
        writer.place(keys, sums)
    runs.discard()
    return writer.finish(header)
