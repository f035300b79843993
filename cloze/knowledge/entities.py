"""A table of entities by their ids: vectors, names and types, for texts whose mentions are linked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.text_files import read_all
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import EntityNumbers, LookUp
from cloze.corpus.tables.vector_table import VectorSource, rows_by_id
from cloze.errors import CorpusError, propose
from cloze.registry import register
from cloze.untrusted import parse_json

Int64 = NDArray[np.int64]
COLUMNS = ("id", "label", "aliases", "type", "description", "count")
_OTHER_NAMES = {"name": "label", "types": "type"}


class EntityRecord(NamedTuple):
    """One line of a file of entities: its names, the first of them its label, its types, and its prior: how often it is meant."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    prior: float | None


class NameTokens(NamedTuple):
    """Names as token ids, one after another: `ids`, and by the number of the entity (0: none) the `first` and the `size`."""

    ids: NDArray[np.int32]
    first: Int64
    size: Int64

    def same(self, entity: Int64, other: Int64) -> NDArray[np.bool_]:
        """Whether the names of these entities (M,) are equal, pair by pair."""
        equal = self.size[entity] == self.size[other]
        for position in range(int(self.size.max(initial=0))):
            here = np.flatnonzero(equal & (position < self.size[entity]))
            equal[here] = self.ids[self.first[entity[here]] + position] == self.ids[self.first[other[here]] + position]
        return np.asarray(equal)


class Groups(NamedTuple):
    """Groups of entities: the `members` of all groups one after another, where each group begins and how many members it has.

    `kind` lists the groups of every entity, one after another, and `place` the entity's own place in each, -1 if it has no name
    and is no member; `first_owned` and `owned` say where those of an entity begin and how many they are, by its number.
    """

    members: Int64
    first: Int64
    sizes: Int64
    kind: Int64
    place: Int64
    first_owned: Int64
    owned: Int64


@register("table", "entities")
class Entities(LookUp):
    """Entities by their ids (`Q42`, `/m/02mjmr`), which are the labels of a layer of `mentions`.

    Args:
        vectors: Vectors whose words are the ids: a run of `transe`, or a file of word2vec, GloVe or fastText. Entities that only
            another file has get the vector zero.
        names: A table with tabs and the columns id, label, aliases, type, description, count, in the order of its header; without
            a header: id, label. Several aliases or types are separated by `|`.
        types: The same, or `{"Q42": ["Q5"]}` as JSON; without a header: id, type.

    `--bind NAME=PATH` gives the vectors.
    """

    bound_to = "vectors"

    def __init__(self, *, vectors: str | None = None, names: str | None = None, types: str | None = None) -> None:
        self.vectors, self.names, self.types = vectors, names, types

    @property
    def opens(self) -> str | None:
        """The vectors that `bind` is given opened, None if there are none."""
        return self.vectors

    def bind(self, store: Store, vectors: VectorSource | None = None) -> BoundEntities:
        """The entities for one store. Raises `CorpusError` if no file is named, or no file has an entity that the store
        mentions."""
        listed = [read_entities(file, second) for file, second in ((self.names, "label"), (self.types, "type")) if file]
        ids = list(dict.fromkeys(
            [*(() if vectors is None else vectors.words), *(key for by_id in listed for key in by_id)]
        ))
        if not ids:
            raise CorpusError(
                "tables: entities: no file of entities. Give their vectors (--bind NAME=RUN), or name a file: "
                "--set tables.NAME.names=FILE"
            )
        names = [tuple(dict.fromkeys(name for by_id in listed if key in by_id for name in by_id[key].names)) for key in ids]
        types = [tuple(dict.fromkeys(kind for by_id in listed if key in by_id for kind in by_id[key].types)) for key in ids]
        tokens = [store.tokenizer().encode(forms[0]).ids.tolist() if forms else [] for forms in names] if any(names) else None
        return BoundEntities(
            ids, matrix=rows_by_id(vectors, ids), names=[forms[0] if forms else "" for forms in names], types=types,
            tokens=tokens,
        ).over(store, ", ".join(filter(None, (self.vectors, self.names, self.types))))

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundEntities:
        """The bound table from `BoundEntities.arrays`. Raises `CorpusError` for any other arrays."""
        try:
            about = parse_json(arrays["about"].tobytes().decode())
            pieces = None
            if "tokens" in arrays:
                pieces = [ids.tolist() for ids in np.split(arrays["tokens"], arrays["ends"][:-1])]
            return BoundEntities(
                about["ids"], matrix=arrays.get("matrix"), names=about["names"], types=[tuple(t) for t in about["types"]],
                tokens=pieces,
            )
        except (KeyError, ValueError, TypeError, UnicodeDecodeError):
            raise CorpusError("entities: expected ids, names and types. The file is damaged: copy it again.") from None

    @staticmethod
    def over(bound: BoundEntities, store: Store) -> BoundEntities:
        """The entities of a checkpoint, for the layers of another store."""
        return bound.over(store)

    @staticmethod
    def naming(bound: BoundEntities, labels: Mapping[str, Sequence[str]]) -> BoundEntities:
        """The entities of a checkpoint, for layers whose labels have these names."""
        return bound.naming(labels)


class BoundEntities(EntityNumbers):
    """Entities with ids from 1 on; 0 is none, and the padding.

    Attributes:
        ids: The string id of each entity, in order: entity k has the number k + 1.
        size: The number of entities + 1, as an embedding needs it.
        matrix: Their vectors (size, D), float32, row 0 zero; None without vectors.
        names: The label of each entity, empty where it is not known.
        types: The types of each entity, as string ids.
        tokens: The token ids of each label; None if no label is known.
    """

    def __init__(
        self, ids: Sequence[str], *, matrix: NDArray[np.float32] | None = None, names: Sequence[str] = (),
        types: Sequence[tuple[str, ...]] = (), tokens: Sequence[Sequence[int]] | None = None,
        layers: Mapping[str, NDArray[np.int32]] | None = None,
    ) -> None:
        super().__init__(ids, layers)
        self.size = len(self.ids) + 1
        self.matrix = matrix
        self.names = tuple(names) or ("",) * len(self.ids)
        self.types = tuple(types) or ((),) * len(self.ids)
        self.tokens = tokens
        self._groups: dict[str, Groups] = {}

    @cached_property
    def name_tokens(self) -> NameTokens:
        """The tokens of the label of every entity. Raises `CorpusError` if no label is known."""
        if self.tokens is None:
            raise CorpusError("tables: entities: no names. Name a file with them: --set tables.NAME.names=FILE")
        size = np.array([0, *map(len, self.tokens)], np.int64)
        return NameTokens(np.array([piece for name in self.tokens for piece in name], np.int32), np.cumsum(size) - size, size)

    def grouped(self, by: str) -> Groups:
        """Entities that have a name, in groups that share a type (`by: type`), or all in one (`any`). Raises `CorpusError` if no
        entity has a type, or none has a name."""
        if by not in self._groups:
            kinds = [kinds if by == "type" else ("",) for kinds in self.types]
            if not any(kinds):
                raise CorpusError("tables: entities: no types. Name a file with them: --set tables.NAME.types=FILE")
            numbers = {kind: number for number, kind in enumerate(dict.fromkeys(k for several in kinds for k in several))}
            entity = np.repeat(np.arange(1, self.size), [len(several) for several in kinds])
            kind = np.array([numbers[k] for several in kinds for k in several], np.int64)
            indices = np.flatnonzero(self.name_tokens.size[entity] > 0)
            order = indices[np.argsort(kind[indices], kind="stable")]
            count = np.bincount(kind[indices], minlength=len(numbers))
            first, owned = np.cumsum(count) - count, np.array([0, *map(len, kinds)], np.int64)
            rank = np.full(len(entity), -1, np.int64)
            rank[order] = np.arange(len(order)) - np.repeat(first, count)
            self._groups[by] = Groups(entity[order], first, count, kind, rank, np.cumsum(owned) - owned, owned)
        return self._groups[by]

    def over(self, store: Store, files: str = "") -> Self:
        """The same entities with the labels of a store's layers. Raises `CorpusError` if it has layers with labels and none of
        them has a label that is an entity here; `files` names where the entities come from."""
        table = super().over(store)
        if table._layers and not any(numbers.any() for numbers in table._layers.values()):
            layer = next(iter(table._layers))
            labels = store.label_names(layer)
            raise CorpusError(
                f"{store.path}: no label of the layer {layer!r} ({', '.join(labels[:3])}, …) is an entity of "
                f"{files or 'the checkpoint'} ({', '.join(self.ids[:3])}, …).\n  Give entities and mentions with the same ids."
            )
        return table

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint; `Entities.restored` reads it."""
        about = json.dumps({"ids": self.ids, "names": self.names, "types": self.types}, ensure_ascii=False)
        arrays: dict[str, NDArray[Any]] = {"about": np.frombuffer(about.encode(), np.uint8).copy()}
        if self.matrix is not None:
            arrays["matrix"] = self.matrix
        if self.tokens is not None:
            arrays["tokens"] = np.array([piece for name in self.tokens for piece in name], np.int32)
            arrays["ends"] = np.cumsum([len(name) for name in self.tokens], dtype=np.int64)
        return arrays


def read_entities(file: str, second: str = "label") -> dict[str, EntityRecord]:
    """The entities of a file by id. `second` names the second column of a table without a header.

    Raises `CorpusError` for a missing file, a line without an id, and an id that has two lines.
    """
    text = read_all(Path(file).expanduser())
    if Path(file).name.removesuffix(".xz").removesuffix(".gz").endswith(".json"):
        return _from_json(text, file)
    return _from_table(text.split("\n"), file, second)


def header_of(cells: Sequence[str], location: str) -> tuple[str, ...] | None:
    """The columns that the first line of a table names; None if it is no header, which begins with a cell `id`.

    Raises `CorpusError`, which begins with `location`, if it names any other column.
    """
    if cells[0] != "id" or len(cells) < 2:
        return None
    columns = tuple(_OTHER_NAMES.get(cell, cell) for cell in cells)
    for column in columns:
        if column not in COLUMNS:
            raise CorpusError(f"{location}: unknown column {column!r}. {propose(column, COLUMNS)}")
    return columns


def _from_table(rows: Sequence[str], file: str, second: str) -> dict[str, EntityRecord]:
    entities: dict[str, EntityRecord] = {}
    columns: Sequence[str] = ("id", second)
    first = next((number for number, row in enumerate(rows, 1) if row.strip()), 1)
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row.rstrip("\r").split("\t")]
        if cells == [""]:
            continue
        if number == first and (header := header_of(cells, f"{file}:{number}")) is not None:
            columns = header
            continue
        if len(cells) < 2 or len(cells) > len(columns) or not cells[0]:
            raise CorpusError(
                f"{file}:{number}: {row.rstrip()[:60]!r}; expected {', '.join(columns)}, with a tab between them, and an id."
            )
        if cells[0] in entities:
            raise CorpusError(f"{file}:{number}: the id {cells[0]} has a line already. Keep one, with its names as aliases.")
        by = dict(zip(columns, cells, strict=False))
        names = [by.get("label", ""), *by.get("aliases", "").split("|")]
        try:
            count = float(by["count"]) if by.get("count") else None
        except ValueError:
            raise CorpusError(f"{file}:{number}: the count {by['count']!r} is no number.") from None
        entities[cells[0]] = EntityRecord(
            tuple(name.strip() for name in names if name.strip()),
            tuple(kind.strip() for kind in by.get("type", "").split("|") if kind.strip()), count,
        )
    if not entities:
        raise CorpusError(f"{file}: no entities in it; expected {', '.join(columns)}, with a tab between them.")
    return entities


def _from_json(text: str, file: str) -> dict[str, EntityRecord]:
    """Types by id, as `{"Q42": ["Q5"]}`."""
    try:
        types = parse_json(text)
        if all(isinstance(kinds, list) and all(isinstance(kind, str) for kind in kinds) for kinds in types.values()):
            return {identifier: EntityRecord((), tuple(kinds), None) for identifier, kinds in types.items()}
    except (ValueError, AttributeError):
        pass
    raise CorpusError(f'{file}: expected types by id as JSON, such as {{"Q42": ["Q5"]}}.')
