"""Small text files read as a whole: their text, their lines, the objects of JSON lines; packed files are unpacked."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError, nearest, nearest_path
from cloze.untrusted import parse_json

_JSON = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class Line:
    """One line of a text file: its number (from 1) and its text without the line end."""

    number: int
    text: str


def open_bytes(path: Path | str) -> BinaryIO:
    """A file for reading, `-` for standard input, .gz and .xz unpacked; a path that cannot be read is a `TaskError`."""
    if str(path) == "-":
        return sys.stdin.buffer
    require_files([path])
    path = Path(path)
    if path.is_dir():
        raise TaskError(f"{path}: is a folder, expected a file.")
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path))
    return cast(BinaryIO, lzma.open(path)) if path.suffix == ".xz" else path.open("rb")


def require_files(paths: Iterable[Path | str]) -> None:
    """Raise a `TaskError` for the first path that does not exist; `-` is standard input."""
    for path in map(Path, paths):
        if str(path) != "-" and not path.exists():
            raise TaskError(f"{path}: no such file. {nearest_path(path)}".rstrip())


def read_all(path: Path | str) -> str:
    """The text of a file: UTF-8 with or without a byte-order mark; other bytes are a `TaskError` with their line."""
    with open_bytes(path) as file:
        try:
            raw = file.read()
        except (EOFError, OSError, lzma.LZMAError) as error:
            raise TaskError(f"{path}: damaged, or not the format that its name says ({error}).") from error
    if b"\0" in raw[:65536]:
        raise TaskError(f"{path}: a binary file, expected UTF-8 text.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _not_utf8(path, line, raw[error.start]) from None


def lines(path: Path | str) -> Iterator[Line]:
    """The lines of a file with their numbers, in constant memory; only line feeds end a line, with or without a carriage return.

    Errors are those of `read_all`, raised when the line is read.
    """
    looked = 0
    with open_bytes(path) as file:
        try:
            for number, raw in enumerate(file, start=1):
                if looked < 65536 and b"\0" in raw[: 65536 - looked]:
                    raise TaskError(f"{path}: a binary file, expected UTF-8 text.")
                looked += len(raw)
                yield Line(number, _decoded(path, number, raw.removesuffix(b"\n")).removesuffix("\r"))
        except (EOFError, OSError, lzma.LZMAError) as error:
            raise TaskError(f"{path}: damaged, or not the format that its name says ({error}).") from error


@contextmanager
def open_text(path: Path | str) -> Iterator[Iterator[str]]:
    """A file as text with its line ends as they are, for readers of quoted cells; errors are those of `read_all`."""
    with open_bytes(path) as file:
        try:
            yield io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError:
            read_all(path)  # reports the line
            raise
        except (EOFError, OSError, lzma.LZMAError) as error:
            raise TaskError(f"{path}: damaged, or not the format that its name says ({error}).") from error


def _decoded(path: Path | str, number: int, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, number, raw[error.start]) from None


def _not_utf8(path: Path | str, line: int, byte: int) -> TaskError:
    return TaskError(
        f"{path}:{line}: byte 0x{byte:02x} is not UTF-8. Save the file as UTF-8 (iconv -f LATIN1 -t UTF-8 {path})."
    )


def json_lines(path: Path | str, fault: Fault | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their line numbers; blank lines are skipped. A line without an object is reported to
    `fault`, or a `TaskError`."""
    for line in lines(path):
        if not line.text.strip():
            continue
        try:
            record = parse_json(line.text)
        except json.JSONDecodeError as error:
            unusable(path, line.number, f"not JSON: {error.msg} at column {error.colno}.", fault)
            continue
        if isinstance(record, dict):
            yield line.number, record
        else:
            unusable(path, line.number, f"expected a JSON object, got {type(record).__name__}.", fault)


def is_json_lines(path: Path | str) -> bool:
    """Whether a file has an ending of JSON lines (`.jsonl`, `.ndjson`, `.json`, also compressed)."""
    suffixes = [s for s in Path(path).suffixes if s not in (".gz", ".xz")]
    return bool(suffixes) and suffixes[-1] in _JSON


def string_field(path: Path | str, number: int, record: dict[str, Any], field: str) -> str:
    """A text field of a JSON-lines record; if it is missing, a `TaskError` that names the existing fields."""
    if field not in record:
        raise TaskError(f"{path}:{number}: no field {field!r}. {nearest(field, record)}")
    if not isinstance(record[field], str):
        raise TaskError(f"{path}:{number}: field {field!r} is {type(record[field]).__name__}, expected text.")
    return cast(str, record[field])
