"""Small text files read as a whole: their text, their lines, the objects of JSON lines; packed files are unpacked."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast

from cloze.corpus.readers.pipes import open_pipe
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError, nearest_path, propose
from cloze.text.encodings import SAMPLE, not_utf8, utf8_stream
from cloze.untrusted import decode_json, parse_json

_JSON = (".jsonl", ".ndjson", ".json")


_BLANKS = " \t\r\n\f\v"
_APART = re.compile(f"[{_BLANKS}]+")


@dataclass(frozen=True)
class Line:
    """One line of a text file: its number (from 1) and its text without the line end."""

    number: int
    text: str


@contextmanager
def open_bytes(path: Path | str) -> Iterator[IO[bytes]]:
    """A file for reading as UTF-8; `-` is standard input, .gz and .xz are unpacked.

    The encoding is the one that the user names, or that the first bytes show. A path that cannot be read, a damaged archive,
    binary data, and an encoding that is not certain are a `TaskError`.
    """
    stream = open_pipe(path) or _unpacked(path)
    try:
        yield utf8_stream(stream, str(path), error=TaskError)
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise TaskError(f"{path}: damaged, or not the format that its name says ({error}).") from error
    finally:
        stream.close()


def _unpacked(path: Path | str) -> IO[bytes]:
    require_files([path])
    path = Path(path)
    if path.is_dir():
        raise TaskError(f"{path}: is a folder, expected a file.")
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def require_files(paths: Iterable[Path | str]) -> None:
    """Raise a `TaskError` for the first path that does not exist; `-` is standard input."""
    for path in map(Path, paths):
        if str(path) != "-" and not path.exists():
            raise TaskError(f"{path}: no such file. {nearest_path(path)}".rstrip())


def read_all(path: Path | str) -> str:
    """The text of a file, without a byte-order mark. Bytes that are not UTF-8 in a file of UTF-8, and NUL, are a `TaskError` with
    their line."""
    return "".join(_text_lines(path))


def lines(path: Path | str) -> Iterator[Line]:
    """The lines of a file with their numbers, in constant memory; only line feeds end a line, with or without a carriage return.
    In a file without line feeds, carriage returns do.

    Errors are those of `read_all`, raised when the line is read.
    """
    for number, text in enumerate(_text_lines(path), start=1):
        yield Line(number, text.removesuffix("\n").removesuffix("\r"))


@contextmanager
def open_text(path: Path | str) -> Iterator[Iterator[str]]:
    """A file as text with its line ends as they are, for readers of quoted cells; errors are those of `read_all`."""
    with open_bytes(path) as file:
        text = io.TextIOWrapper(cast(Any, file), encoding="utf-8-sig", newline="")
        try:
            yield _without_nul(path, text)
        except UnicodeDecodeError:
            read_all(path)  # reports the line
            raise
        finally:
            text.detach()


def cells_of(text: str) -> list[str]:
    """The parts of a line between blanks of ASCII. Other spaces are part of a word, such as the no-break space of New York in a
    corpus, or U+2028."""
    inner = text.strip(_BLANKS)
    return _APART.split(inner) if inner else []


def stripped(cell: str) -> str:
    """A cell without blanks of ASCII around it."""
    return cell.strip(_BLANKS)


def _text_lines(path: Path | str) -> Iterator[str]:
    """The lines with their line feeds."""
    other = False  # whether a character beyond ASCII was read
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                data = raw + file.read(SAMPLE)
                other = other or not data.decode("utf-8", "ignore").isascii()
                raise _undecodable(path, number, data, error.start, mixed=other) from None
            other = other or not text.isascii()
            _require_no_nul(path, number, text)
            if number == 1 and not text.endswith("\n") and "\r" in text:  # the only line: the lines of old Macs end with \r
                yield from (f"{line}\n" for line in text.removesuffix("\r").split("\r"))
                return
            yield text


def _undecodable(path: Path | str, line: int, data: bytes, begin: int, *, mixed: bool) -> TaskError:
    if not mixed:
        return TaskError(not_utf8(str(path), line, data, begin))
    return TaskError(
        f"{path}:{line}: byte 0x{data[begin]:02x} is not UTF-8, but other characters of this file are.\n"
        "  Correct this line: it is damaged, or comes from a file in another encoding."
    )


def _without_nul(path: Path | str, rows: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(rows, start=1):
        _require_no_nul(path, number, text)
        yield text


def _require_no_nul(path: Path | str, line: int, text: str) -> None:
    if "\0" in text:
        raise TaskError(f"{path}:{line}: a NUL character, which no text has. Remove it: tr -d '\\000' < {path} > NEW")


def json_lines(path: Path | str, fault: Fault | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file with their line numbers; blank lines are skipped. A line without an object is reported to
    `fault`, or a `TaskError`.

    An array of objects, and objects of several lines, are read, too; such a file is held in memory.
    """
    filled = (line for line in lines(path) if line.text.strip())
    first = next(filled, None)
    if first is not None and (first.text.lstrip().startswith("[") or first.text.strip() == "{"):
        yield from _spread_objects(path, [first, *filled], fault)
        return
    for line in chain([] if first is None else [first], filled):
        try:
            record = parse_json(line.text)
        except json.JSONDecodeError as error:
            unusable(path, line.number, f"not JSON: {error.msg} at column {error.colno}.", fault=fault)
            continue
        if isinstance(record, dict):
            yield line.number, record
        else:
            unusable(path, line.number, f"expected a JSON object, got {type(record).__name__}.", fault=fault)


def _spread_objects(path: Path | str, read: Sequence[Line], fault: Fault | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of arrays and of objects of several lines."""
    text, begins = "\n".join(line.text for line in read), [0]
    for line in read:
        begins.append(begins[-1] + len(line.text) + 1)

    def place(at: int) -> tuple[int, int]:
        """The line and the column of a character."""
        row = min(bisect_right(begins, at), len(read)) - 1
        return read[row].number, at - begins[row] + 1

    at, inside, number = 0, False, 0
    while (at := _beyond(text, at, " \t\r\n," if inside else " \t\r\n")) < len(text):
        if text[at] == ("]" if inside else "["):
            at, inside = at + 1, not inside
            continue
        try:
            value, end = decode_json(text, at)
        except json.JSONDecodeError as error:
            row, column = place(error.pos)
            raise TaskError(f"{path}:{row}: not JSON: {error.msg} at column {column}.") from None
        if isinstance(value, dict):
            number = max(place(at)[0], number + 1)  # each has its own, also where several are on a line
            yield number, value
        else:
            unusable(path, place(at)[0], f"expected a JSON object, got {type(value).__name__}.", fault=fault)
        at = end
    if inside:
        raise TaskError(f"{path}:{read[-1].number}: not JSON: the array has no end. Is the file cut off?")


def _beyond(text: str, at: int, passed: str) -> int:
    while at < len(text) and text[at] in passed:
        at += 1
    return at


def is_json_lines(path: Path | str) -> bool:
    """Whether a file has an ending of JSON lines (`.jsonl`, `.ndjson`, `.json`, also compressed)."""
    suffixes = [s for s in Path(path).suffixes if s not in (".gz", ".xz")]
    return bool(suffixes) and suffixes[-1] in _JSON


def string_field(path: Path | str, number: int, record: dict[str, Any], field: str) -> str:
    """A text field of a JSON-lines record; if it is missing, a `TaskError` that names the existing fields."""
    if field not in record:
        raise TaskError(f"{path}:{number}: no field {field!r}. {propose(field, record)}")
    if not isinstance(record[field], str):
        raise TaskError(f"{path}:{number}: field {field!r} is {type(record[field]).__name__}, expected text.")
    return cast(str, record[field])
