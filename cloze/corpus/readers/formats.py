"""The formats of text files, and how a user names one: `csv`, `jsonl:content`, `auto:3`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from cloze.errors import CorpusError, did_you_mean, nearest, propose
from cloze.text.encodings import known_encoding

Format = Literal["blank", "book", "line", "sentence", "wiki", "jsonl", "csv", "tsv", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)
STRUCTURED = frozenset({"jsonl", "csv", "tsv", "parquet"})
COLUMN = "text"
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE)


class RequestedFormat(NamedTuple):
    """The format that the user named ("auto": detect it), and the column or key that holds the text."""

    format: str
    column: str = COLUMN
    encoding: str = ""  # of the file's bytes; none: find it out


def wanted(option: str) -> RequestedFormat:
    """Reads `FORMAT`, `FORMAT:COLUMN`, `FORMAT@ENCODING` or all three, `FORMAT@ENCODING:COLUMN`; a `CorpusError` for an unknown
    format, or a column in a format without columns."""
    first, _, column = option.partition(":")
    format, _, encoding = first.partition("@")
    if format not in ("auto", *FORMATS):
        raise CorpusError(f"--format {format}: no such format. {propose(format, ('auto', *FORMATS))}")
    if column and format not in ("auto", *STRUCTURED):
        raise CorpusError(
            f"--text {column}: a file read as {format} has no columns; expected --format auto, {', '.join(sorted(STRUCTURED))}."
        )
    return RequestedFormat(format, column or COLUMN, encoding)


def with_column(format: str, column: str | None, encoding: str | None = None) -> str:
    """A format, a column and an encoding in one word, as `wanted` reads it; the format may name its column already.

    >>> with_column("jsonl:body", None, "latin-1"), with_column("auto", "body")
    ('jsonl@iso8859-1:body', 'auto:body')
    """
    format, _, named = format.partition(":")
    format = "pairs" if format == "gettext" else format  # catalogues are parallel text
    if encoding and format == "pairs":
        raise CorpusError("--encoding: parallel text is read as UTF-8. Convert it first: iconv -f NAME -t UTF-8 IN > OUT")
    read_as = f"{format}@{known_encoding(encoding)}" if encoding else format
    return f"{read_as}:{column or named}" if column or named else read_as


def require_columns(requested: RequestedFormat, name: str) -> None:
    """Raise a `CorpusError` if a format or an encoding is named for a data set of the hub, which declares its own."""
    option = "--format" if requested.format != "auto" else "--encoding" if requested.encoding else ""
    if option:
        raise CorpusError(f"{name}: a data set declares the format of its files. Leave out {option}.")


def no_column(location: str, column: str, columns: Sequence[str], format: str = "") -> CorpusError:
    """The message for a missing column of a table that is read as `format`."""
    separators, right = other_separator(columns, format)
    names = [name if len(name) <= 40 else name[:39] + "…" for name in columns]
    listing = ", ".join(names[:20]) + (" …" if len(names) > 20 else "") or "none"
    if separators:
        way_out = f"If {separators} separate its columns, it is {right.upper()}: --format {right}"
        return CorpusError(f"{location}: no column {column!r}; it has: {listing}.\n  {way_out}")
    way_out = f"{did_you_mean(nearest(column, names))} Name the column with the text: --text NAME".lstrip()
    return CorpusError(f"{location}: no column {column!r}; it has: {listing}.\n  {way_out}")


def other_separator(cells: Sequence[str], format: str) -> tuple[str, str]:
    """What separates the cells of a table if not what its `format` says, in the plural, and the format that says so; ("", "") for
    a row with several cells, and where no other separator is in it."""
    separators = {"tsv": {"commas": ",", "semicolons": ";"}, "csv": {"tabs": "\t"}}.get(format, {})
    name = next((name for name, character in separators.items() if len(cells) == 1 and character in cells[0]), "")
    return name, {"tsv": "csv", "csv": "tsv"}[format] if name else ""


class Separator(NamedTuple):
    """The separator of a CSV file, and whether its first line only names it (`sep=;`, for Excel), so that it is no row."""

    character: str
    in_first_line: bool


def separator_of(first: str) -> Separator:
    """The separator by the first line of a CSV file: the named one, or `;` where the line has no comma, as spreadsheets write it
    in half of Europe."""
    if (match := _SEPARATOR.fullmatch(first)) is not None:
        return Separator(match[1], True)
    return Separator(";" if ";" in first and "," not in first else ",", False)
