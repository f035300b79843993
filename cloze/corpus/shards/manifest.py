"""The sharded store: a manifest over ordinary token stores, for text that no machine should have to hold as a whole.

    store.json       the manifest: version 2, what every shard has in common, counts, the shards in the order of the text
    tokenizer/       the tokenizer that made the ids
    shards/<name>/   an ordinary token store each, of some 2^28 tokens at most
    plans/           numbers of rows and passages that were planned before; may be deleted

A manifest with a single shard opens as that shard: the order of its rows, its digest and its hash are those of an ordinary store.
`sharded.py` reads rows from several; what reads the arrays of a store as a whole is refused.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakSet, finalize

import numpy as np
from numpy.typing import NDArray

from cloze.atomic import whole_file
from cloze.corpus.shards.remote import NoRoom, Remote
from cloze.corpus.shards.sharded import WINDOW, bind_shards
from cloze.corpus.stores.store import COUNTS, HEADER, PLANS, SHARDS, SHARDS_VERSION, TOKENIZER, Store, file_hash, parsed_counts
from cloze.errors import CorpusError, RunError, counted, sized
from cloze.processes import processes, processes_here

if TYPE_CHECKING:
    from cloze.corpus.stores.source import Source

_COMMON = ("dtype", "vocab_size", "roles", "tokenizer_hash", "words", "annotations", "line_ends", "languages", "pairs")


class Shard(NamedTuple):
    """A shard as the manifest describes it: its name, sizes, the bytes of its files, and the sha256 of its header."""

    name: str
    tokens: int
    sentences: int
    documents: int
    bytes: int
    sha256: str


class Holder(Protocol):
    """A source that keeps shards open (`sharded.BoundShards`)."""

    def let_go(self) -> None: ...


class ShardedStore(Store, holds=SHARDS):
    """A store of several shards, which are opened when they are needed."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path, self.header = path, header
        self._remote = Remote.at(path)
        self._shards = tuple(Shard(*(entry[name] for name in Shard._fields)) for entry in header[SHARDS])
        self.holders: WeakSet[Holder] = WeakSet()  # sources that keep shards open

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards in the order of the text."""
        return self._shards

    def __repr__(self) -> str:
        return f"ShardedStore({str(self.path)!r}: {len(self.shards)} shards, {self.documents:,} documents, {self.size:,} tokens)"

    @property
    def documents(self) -> int:
        """The number of documents."""
        return sum(shard.documents for shard in self.shards)

    @property
    def sentences(self) -> int:
        """The number of sentences."""
        return sum(shard.sentences for shard in self.shards)

    @property
    def size(self) -> int:
        """The number of tokens."""
        return sum(shard.tokens for shard in self.shards)

    @property
    def sample(self) -> Store:
        """The first shard."""
        return self.shard(0)

    def shard(self, number: int) -> Store:
        """A shard as an ordinary store.

        Its content was checked when the manifest was written or when it was fetched; here sizes are compared.
        """
        shard = self.shards[number]
        if self._remote is None:
            return Store.open(self.path / SHARDS / shard.name, content=False)
        try:
            return self._fetched(self._remote, shard)
        except NoRoom:
            for holder in list(self.holders):
                holder.let_go()
            gc.collect()  # a shard is unlocked when nothing refers to its store any more
            return self._fetched(self._remote, shard)

    def _fetched(self, remote: Remote, shard: Shard) -> Store:
        """A shard that stays in the cache for as long as its store is open."""
        held = remote.hold(shard.name)
        try:
            store = Store.open(remote.shard(shard), content=False)
        except BaseException:
            os.close(held)
            raise
        finalize(store, os.close, held)
        return store

    @property
    def fetches(self) -> bool:
        """Whether shards are fetched from an address when they are needed."""
        return self._remote is not None

    def expect(self, now: Sequence[int], next: Sequence[int]) -> None:
        """Learn which shards are read now and which come next, to fetch them ahead of time."""
        if self._remote is not None:
            self._remote.ahead(*([self.shards[number] for number in numbers] for numbers in (now, next)))

    def require_room(self, lanes: int, window: int) -> None:
        """Raise `CorpusError` if the cache cannot hold the shards that the lanes of this machine read at once."""
        limit = 0 if self._remote is None else self._remote.limit
        hosts = max(1, processes() // processes_here())
        here, largest = -(-lanes // hosts), max(shard.bytes for shard in self.shards)
        needed, ample = (min(len(self.shards), here * count) * largest for count in (window + 1, 2 * window))
        if limit and needed > limit:
            waits = f"; with {sized(ample)} no step waits for a shard" if ample > needed else ""
            raise CorpusError(
                f"{self.path}: {lanes} lanes over {counted(hosts, 'machine')} need {sized(needed)} for shards; the "
                f"cache may take {sized(limit)}.\n  Give a larger --cache DIR:SIZE{waits}, or fewer lanes: --set training.lanes=N"
            )

    @property
    def plans(self) -> Path:
        """The folder of what was planned before."""
        return self.path / PLANS

    def bind_source(self, source: Source, *, lanes: int, options: Mapping[str, Any], **address: Any) -> Any:
        """A source over all shards, read in this number of lanes."""
        self.require_room(lanes, WINDOW)
        return bind_shards(source, self, lanes=lanes, options=options, **address)

    def counts(self) -> NDArray[np.int64]:
        """How often every id occurs, (vocab_size,), from the manifest."""
        return parsed_counts(self.header)

    def verify(self) -> None:
        """Compare the checksums of all files of all shards. Raises `CorpusError` if one differs."""
        for number, shard in enumerate(self.shards):
            store = self.shard(number)
            store.verify()
            digest = file_hash(store.path / HEADER)
            if digest != shard.sha256:
                raise CorpusError(
                    f"{store.path / HEADER}: damaged or edited; its checksum is {digest[:12]}, expected {shard.sha256[:12]}.\n"
                    "  Remove the shard, and run the build again."
                )
        if (self.path / TOKENIZER / "tokenizer.json").is_file():
            self.tokenizer()

    def label_names(self, layer: str) -> tuple[str, ...]:
        """The names of the labels of a layer, in the order of their numbers."""
        return self.sample.label_names(layer)

    def __getattr__(self, name: str) -> Any:
        """Refuse the arrays of an ordinary store: code that asks for them needs the whole text. Layers are the first shard's."""
        if name in ("layers", "labels"):
            first = self.sample
            self.__dict__ |= {"layers": first.layers, "labels": first.labels}
            return self.__dict__[name]
        if name in ("tokens", "word_bits", "sentence_starts", "document_sentences", "_languages"):
            raise CorpusError(
                f"{self.path}: this store has {len(self.shards)} shards, and what you asked for reads a store as a whole.\n"
                f"  Write it as one store: cloze corpus join {self.path} --out STORE"
            )
        raise AttributeError(name)

    def _check_ends(self) -> None:
        if self._remote is not None:
            return
        missing = [s.name for s in self.shards if not (self.path / SHARDS / s.name / HEADER).is_file()]
        if missing:
            raise CorpusError(
                f"{self.path}: the shard {missing[0]} is missing ({len(missing)} of {len(self.shards)} shards are): the store is "
                f"only partly copied.\n  Copy it again: cloze corpus copy FROM {self.path}"
            )

    def _check_content(self) -> None:
        for name in self.header["files"]:
            if name.startswith(f"{TOKENIZER}/"):
                self._verify(name)


def write_manifest(path: Path, names: Sequence[str]) -> Store:
    """Write the manifest over the shards with these names, in this order, and open the store.

    Raises `CorpusError` if they do not belong together.
    """
    first: dict[str, Any] | None = None
    shards, files, reports = [], {}, []
    counts: NDArray[np.int64] | None = None
    for name in names:
        folder = path / SHARDS / name
        store = Store.open(folder)
        common = {key: store.header[key] for key in _COMMON if key in store.header}
        if first is not None and common != first:
            differs = next(key for key in _COMMON if common.get(key) != first.get(key))
            raise CorpusError(
                f"{folder}: was not built like the first shard, {names[0]}: its {differs} differs.\n"
                "  Remove the folder, and build it again with the command that built the others."
            )
        first = common
        counts = store.counts() if counts is None else counts + store.counts()
        size = sum(entry["bytes"] for entry in store.header["files"].values()) + (folder / HEADER).stat().st_size
        digest = file_hash(folder / HEADER)
        shards.append(Shard(name, store.size, store.sentences, store.documents, size, digest)._asdict())
        reports.append(store.report)
    if first is None or counts is None:
        raise CorpusError(f"{path}: holds no shard. Build one: cloze corpus build PATH... --shard 256M --out {path}")
    for file in sorted(file for file in (path / TOKENIZER).rglob("*") if file.is_file()):
        files[file.relative_to(path).as_posix()] = {"bytes": file.stat().st_size, "sha256": file_hash(file)}
    totals = {key: sum(shard[key] for shard in shards) for key in ("tokens", "sentences", "documents")}
    header = {
        "format": "cloze sharded token store", "version": SHARDS_VERSION, **first, **totals,
        COUNTS: " ".join(map(str, counts.tolist())), SHARDS: shards, "files": files, "report": _united(reports),
    }
    try:
        with whole_file(path / HEADER) as stage:
            stage.write_text(json.dumps(header, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: cannot write the manifest: {error.strerror}.") from error
    return Store.open(path)


def _united(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The report of the whole build."""
    from cloze.corpus.readers.report import CorpusReport, Oddities

    total = CorpusReport()
    for report in reports:
        total.documents += report.get("documents", 0)
        total.sentences += report.get("sentences", 0)
        total.tokens += report.get("tokens", 0)
        total.bytes += report.get("bytes", 0)
        for file in report.get("files", ()):
            if file not in total.files:
                total.add_file(file["path"], file["format"], file["why"])
        odd = report.get("odd", {})
        counts = {kind: entry["count"] for kind, entry in odd.items()}
        total.odd.add(Oddities(counts, {kind: entry["places"] for kind, entry in odd.items()}))
    return total.as_dict()
