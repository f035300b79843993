"""A knowledge graph on disk: triples of head, relation and tail, the ids of entities and relations, and their texts.

    graph.json      format, version, counts, what was read, size and sha256 of every file; written last
    triples.bin     int32, (N, 3): the numbers of head, relation and tail, as in the files, without repeats
    entities.txt    the id of every entity, one per line
    relations.txt   the id of every relation, one per line
    entity_texts.txt, relation_texts.txt   name or description of each, on one line, empty where there is none; optional

A graph knows no tokenizer. The source `triples` turns it into a store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.array_files import write_values
from cloze.atomic import whole_folder
from cloze.corpus.stores.store import file_hash
from cloze.errors import CorpusError
from cloze.untrusted import parse_json, read_small

Triples = NDArray[np.int32]
Keys = NDArray[np.uint64]

HEADER = "graph.json"
VERSION = 1
_TRIPLES, _ENTITIES, _RELATIONS = "triples.bin", "entities.txt", "relations.txt"
_ENTITY_TEXTS, _RELATION_TEXTS = "entity_texts.txt", "relation_texts.txt"
_REBUILD = "Build it again: cloze corpus build FACTS.tsv --format triples --out GRAPH"


@dataclass(frozen=True, repr=False)
class Graph:
    """The facts of a knowledge graph.

    `entities` and `relations` are their ids, such as Q42 or /m/02mjmr; `triples` (N, 3) int32 are the numbers of head, relation
    and tail in these lists. `entity_texts` and `relation_texts` hold a name or a description for each, empty where there is
    none; None: no texts were given. `report` says what was read.
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    triples: Triples
    entity_texts: tuple[str, ...] | None = None
    relation_texts: tuple[str, ...] | None = None
    report: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Graph({len(self):,} triples, {len(self.entities):,} entities, {len(self.relations):,} relations)"

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of every entity and then of every relation; its id where it has no text."""
        entities = self.entity_texts or self.entities
        relations = self.relation_texts or self.relations
        pairs = zip((*entities, *relations), (*self.entities, *self.relations), strict=True)
        return tuple(text or name for text, name in pairs)

    def keys(self, triples: NDArray[np.integer]) -> Keys:
        """One number for each of some triples (M, 3), in which different triples differ."""
        head, relation, tail = (triples[:, column].astype(np.uint64) for column in range(3))
        return (head * np.uint64(len(self.relations)) + relation) * np.uint64(len(self.entities)) + tail

    def known(self, triples: NDArray[np.integer] | None = None) -> Keys:
        """The sorted keys of some triples, by default of its own; see `contains`."""
        return np.sort(self.keys(self.triples if triples is None else triples))

    @staticmethod
    def is_graph(path: str | Path) -> bool:
        """Whether the path is the folder of a graph."""
        return (Path(path) / HEADER).is_file()

    @classmethod
    def open(cls, path: str | Path) -> Graph:
        """Open the folder of a graph and compare every checksum. Raises `CorpusError` if it is missing, damaged or incomplete."""
        folder = Path(path)
        header = _read_header(folder)
        for name, expected in header["files"].items():
            if not (folder / name).is_file():
                raise CorpusError(f"{folder / name}: is missing. {_REBUILD}")
            if file_hash(folder / name) != expected["sha256"]:
                raise CorpusError(f"{folder / name}: damaged or edited; its checksum differs.\n  {_REBUILD}")
        entities, relations = _lines(folder / _ENTITIES), _lines(folder / _RELATIONS)
        about_entities, about_relations = (
            _lines(folder / name) if name in header["files"] else None for name in (_ENTITY_TEXTS, _RELATION_TEXTS)
        )
        raw = np.fromfile(folder / _TRIPLES, np.int32)
        triples = raw[: len(raw) - len(raw) % 3].reshape(-1, 3)
        graph = cls(entities, relations, triples, about_entities, about_relations, header["report"])
        _check(graph, header, folder)
        return graph

    def save(self, out: str | Path) -> None:
        """Write the graph to a folder, which appears only when complete; an existing one is replaced."""
        target = Path(out)
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(target) as folder:
            write_values(folder / _TRIPLES, np.asarray(self.triples, np.int32))
            lines_by_file = {
                _ENTITIES: self.entities, _RELATIONS: self.relations,
                _ENTITY_TEXTS: self.entity_texts, _RELATION_TEXTS: self.relation_texts,
            }
            for name, lines in lines_by_file.items():
                if lines is not None:
                    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
            files = {path.name: {"bytes": path.stat().st_size, "sha256": file_hash(path)} for path in sorted(folder.iterdir())}
            header = {
                "format": "cloze graph", "version": VERSION, "triples": len(self), "entities": len(self.entities),
                "relations": len(self.relations), "files": files, "report": dict(self.report),
            }
            (folder / HEADER).write_text(json.dumps(header, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @property
    def hash(self) -> str:
        """The sha256 of its triples and of the ids of its entities and relations."""
        digest = hashlib.sha256(np.ascontiguousarray(self.triples, np.int32).tobytes())
        digest.update(json.dumps([self.entities, self.relations]).encode())
        return digest.hexdigest()


def check_out(out: Path, *, replace: bool) -> None:
    """A `CorpusError` where no graph can be written, and for a graph that is there already unless it may be replaced."""
    ancestor = next(parent for parent in out.absolute().parents if parent.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
        raise CorpusError(f"{out}: {ancestor} is not a folder that you can write to. Choose another --out.")
    if Graph.is_graph(out) and not replace:
        raise CorpusError(f"{out}: already holds a graph. Choose another --out, or replace it with --overwrite.")
    if out.exists() and not Graph.is_graph(out) and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"{out}: already exists and is not a graph. Choose another --out, or remove it yourself.")


def contains(sorted_keys: Keys, keys: Keys) -> NDArray[np.bool_]:
    """Which of the keys (M,) are among `sorted_keys`."""
    if not len(sorted_keys):
        return np.zeros(len(keys), np.bool_)
    index = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
    return np.asarray(sorted_keys[index] == keys)


def numbered(names: Iterable[str]) -> dict[str, int]:
    """The number of each name in its list."""
    return {name: number for number, name in enumerate(names)}


def _read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    if not path.is_file():
        raise CorpusError(f"{folder}: not the folder of a graph: {HEADER} is missing. {_REBUILD}")
    try:
        header = parse_json(read_small(path))
        files = {str(name): dict(entry) for name, entry in dict(header["files"]).items()}
        numbers = [int(header[name]) for name in ("version", "triples", "entities", "relations")]
        missing = {_TRIPLES, _ENTITIES, _RELATIONS} - files.keys()
        odd = files.keys() - {_TRIPLES, _ENTITIES, _RELATIONS, _ENTITY_TEXTS, _RELATION_TEXTS}
        if missing or odd or not all(isinstance(entry["sha256"], str) for entry in files.values()):
            raise ValueError
        report = dict(header["report"])
    except (ValueError, KeyError, TypeError):
        raise CorpusError(f"{path}: damaged; expected the description of a graph.\n  {_REBUILD}") from None
    if numbers[0] != VERSION:
        raise CorpusError(f"{path}: version {numbers[0]}; this cloze reads version {VERSION}. Use a newer cloze.")
    return {**header, "files": files, "report": report}


def _lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise CorpusError(f"{path}: damaged; expected UTF-8 text.\n  {_REBUILD}") from None
    return tuple(text.split("\n")[:-1])


def _check(graph: Graph, header: Mapping[str, Any], folder: Path) -> None:
    """Refuse counts and numbers that do not fit: they are used as addresses."""
    sizes = {"triples": len(graph), "entities": len(graph.entities), "relations": len(graph.relations)}
    wrong = [f"{name}: {size:,}, expected {header[name]:,}" for name, size in sizes.items() if size != header[name]]
    texts: Sequence[tuple[Sequence[str] | None, int]] = (
        (graph.entity_texts, len(graph.entities)), (graph.relation_texts, len(graph.relations)),
    )
    wrong += [f"{len(lines):,} texts for {size:,} ids" for lines, size in texts if lines is not None and len(lines) != size]
    limits = (len(graph.entities), len(graph.relations), len(graph.entities))
    for column, limit in enumerate(limits):
        numbers = graph.triples[:, column]
        if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) >= limit):
            wrong.append(f"triples.bin holds the number {int(numbers.max()):,}, expected less than {limit:,}")
    if wrong:
        raise CorpusError(f"{folder}: its files disagree: {wrong[0]}.\n  {_REBUILD}")
