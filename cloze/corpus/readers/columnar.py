"""Rows of labelled and of running text in columnar files: Parquet, Arrow, and folders of Arrow files that `datasets` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloze.corpus.readers.formats import no_column
from cloze.corpus.readers.text_files import require_files
from cloze.errors import CorpusError, MissingExtra, TaskError, UserError
from cloze.untrusted import parse_json

_ENDINGS = frozenset({".parquet", ".arrow", ".feather"})
_STATE, _SPLITS = "state.json", "dataset_dict.json"  # in a folder that `save_to_disk` wrote
TOGETHER = 1024  # rows made into objects at a time
_TEXT = frozenset({"string", "large_string", "string_view", "null"})  # null: no row has a text
_Naming = Callable[[Any], Any]


class ClassName(str):
    """The name of a class, with the `number` that `datasets` stored for it, from 0."""

    number: int


def is_columnar(path: Path | str) -> bool:
    """Whether a path is a Parquet or an Arrow file by its name, or a folder that `datasets` wrote."""
    path = Path(path)
    return path.suffix.lower() in _ENDINGS or is_saved_dataset(path)


def columns_of(path: Path | str) -> tuple[str, ...]:
    """The names of the columns of a file or a folder."""
    with _understood(path):
        return tuple(_Part(_files(path)[0]).schema.names)


def columnar_rows(path: Path | str, only: Collection[str] | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows as objects with their numbers, from 1 and continuing through all files of a folder; a part of a row group at a
    time.

    `only`: the columns that are needed. Without it, or if one of them is missing, all columns that can be text are read. A label
    that `datasets` stored as the number of a name becomes the name (`ClassName`); -1 becomes None. A file that cannot be read is
    a `TaskError`.
    """
    number = 0
    with _understood(path):
        for file in _files(path):
            part = _Part(file)
            names = [name for name in part.schema.names if only is None or name in only]
            if only is not None and len(names) < len(set(only)):
                names, only = list(part.schema.names), None
            binary = [name for name in names if holds_bytes(part.schema.field(name).type)]
            if binary and only is not None:
                raise TaskError(f"{path}: the column {binary[0]!r} holds bytes; expected text, numbers or lists of them.")
            names = [name for name in names if name not in binary]
            namings = _namings(part.schema)
            for columns in part.columns(names):
                plain_columns = {name: list(map(namings.get(name, _plain), values)) for name, values in columns.items()}
                for values in zip(*plain_columns.values(), strict=True):
                    number += 1
                    yield number, dict(zip(plain_columns, values, strict=True))


def is_saved_dataset(folder: Path) -> bool:
    """Whether this is a folder that `save_to_disk` of datasets wrote."""
    return (folder / _STATE).is_file() or (folder / _SPLITS).is_file()


def files_of_dataset(folder: Path) -> list[str]:
    """The files of such a folder in their order. A `CorpusError` for one of several splits."""
    return list(map(str, _files(folder, CorpusError)))


def text_cells(path: str, column: str) -> Iterator[list[str]]:
    """The cells of a column of text of one file, some rows at a time; a missing cell is empty. Faults are `CorpusError`s."""
    with _understood(path, CorpusError):
        part = _Part(Path(path))
        require_text_column(path, column, part.schema)
        for columns in part.columns([column]):
            yield [text or "" for text in columns[column]]


def parquet_batches(file: Any, columns: Sequence[str] | None) -> Iterator[Any]:
    """The rows of a `pyarrow.parquet.ParquetFile`, some at a time: by groups, since a reader of several keeps what it read."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(batch_size=TOGETHER, row_groups=[group], columns=columns)


def require_text_column(path: str, column: str, schema: Any) -> None:
    """Raise a `CorpusError` if a table has no such column, or if it does not hold text."""
    if column not in schema.names:
        raise no_column(path, column, schema.names)
    kind = schema.field(column).type
    if str(kind) not in _TEXT:
        raise CorpusError(f"{path}: the column {column!r} holds {kind}, expected text.\n  Name another: --text NAME")


class _Part:
    """One file: its schema, and its columns some rows at a time."""

    def __init__(self, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        with path.open("rb") as stream:
            magic = stream.read(6)
        if magic.startswith(b"PAR1"):
            self.table = pyarrow.parquet.ParquetFile(path)
            self.schema = self.table.schema_arrow
        else:
            mapped = pyarrow.memory_map(str(path))
            self.table = pyarrow.ipc.open_file(mapped) if magic == b"ARROW1" else pyarrow.ipc.open_stream(mapped)
            self.schema = self.table.schema

    def columns(self, names: Sequence[str]) -> Iterator[dict[str, list[Any]]]:
        """The values of some columns, some rows at a time."""
        for batch in self._batches(list(names)):
            for begin in range(0, batch.num_rows, TOGETHER):
                rows = batch.slice(begin, TOGETHER)
                yield {name: rows.column(name).to_pylist() for name in names}

    def _batches(self, names: list[str]) -> Iterator[Any]:
        import pyarrow
        import pyarrow.parquet

        if isinstance(self.table, pyarrow.parquet.ParquetFile):
            yield from parquet_batches(self.table, names)
        elif isinstance(self.table, pyarrow.ipc.RecordBatchFileReader):
            yield from (self.table.get_batch(number) for number in range(self.table.num_record_batches))
        else:
            yield from self.table


def _files(path: Path | str, error: type[UserError] = TaskError) -> list[Path]:
    """The files of a path in their order; a folder of several splits is an `error`."""
    require_files([path])
    path = Path(path)
    if not path.is_dir():
        return [path]
    if (path / _SPLITS).is_file():
        inside = ", ".join(sorted(split.name for split in path.iterdir() if (split / _STATE).is_file()))
        raise error(f"{path}: a folder of several splits ({inside}). Name one of them, such as {path}/train.")
    if not (path / _STATE).is_file():
        raise error(f"{path}: is a folder, expected a file, or a folder that `save_to_disk` of datasets wrote.")
    try:
        files = [path / Path(entry["filename"]).name for entry in parse_json((path / _STATE).read_bytes())["_data_files"]]
    except (ValueError, KeyError, TypeError):
        files = []
    if not files:
        raise error(f"{path / _STATE}: names no files of data. Save the dataset again: dataset.save_to_disk(…)")
    require_files(files)
    return files


@contextmanager
def _understood(path: Path | str, kind: type[UserError] = TaskError) -> Iterator[None]:
    """Turns faults of the files into errors of this kind, and a missing package into `MissingExtra`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", f"reading {path}") from None
    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = re.split(r"[\n.]", str(error))[0]
        raise kind(f"{path}: a damaged Parquet or Arrow file ({reason}). Copy or write it again.") from None


def holds_bytes(kind: Any) -> bool:
    """Whether an Arrow type is bytes or has some inside."""
    import pyarrow

    if pyarrow.types.is_nested(kind):
        return any(holds_bytes(kind.field(number).type) for number in range(kind.num_fields))
    return "binary" in str(kind)


def _namings(schema: Any) -> dict[str, _Naming]:
    """Functions from numbers to names, for the columns that `datasets` declares as classes."""
    try:
        features = parse_json((schema.metadata or {})[b"huggingface"])["info"]["features"]
        class_names = {name: _class_names(feature) for name, feature in features.items()}
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError):
        return {}
    return {name: _naming(names) for name, names in class_names.items() if names is not None}


def _class_names(feature: Any) -> list[str] | None:
    """The names of a class column, or of a list of classes."""
    while isinstance(feature, (dict, list)):
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel":
            names = feature.get("names")
            return list(map(str, names)) if names else None
        feature = feature.get("feature") if isinstance(feature, dict) else feature[0] if len(feature) == 1 else None
    return None


def _naming(names: Sequence[str]) -> _Naming:
    classes = [ClassName(name) for name in names]
    for number, name in enumerate(classes):
        name.number = number

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(named, value))
        if not isinstance(value, int):
            return _plain(value)
        return None if value == -1 else classes[value] if 0 <= value < len(classes) else value

    return named


def _plain(value: Any) -> Any:
    """A value as JSON could have it: dates, times and decimals are text."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return str(value) if isinstance(value, (date, time, timedelta, Decimal)) else repr(value)
