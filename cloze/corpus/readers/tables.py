"""Text from a column of a table (CSV, TSV), row by row in constant memory.

The first line names the columns; a file without such a line is read by number, `--text 2`. In CSV `"` quotes a cell and `""` is a
quote (RFC 4180). In TSV a quote is an ordinary character, unless the header line itself is quoted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from cloze.corpus.readers.formats import Separator, no_column, separator_of
from cloze.errors import CorpusError, counted
from cloze.text.encodings import PrefixedStream

_LONGEST_CELL = 64 << 20
_LONGEST_ROW = 64 << 20  # characters


class RowText(NamedTuple):
    """The text of one row and the line where the row begins, from 1."""

    line: int
    text: str


def column_of(stream: IO[bytes], name: str, format: str, column: str, *, begin: bytes = b"") -> Iterator[RowText]:
    """The cells of a column. `begin` are bytes already read from the stream.

    A row with more or fewer cells than the first, an unclosed quote, or bytes that are not UTF-8 are a `CorpusError` with the
    line, because a misread table would otherwise become training text.
    """
    text = io.TextIOWrapper(cast(IO[bytes], PrefixedStream(begin, stream)), encoding="utf-8-sig", newline="")
    rows = _rows(_Lines(text, name), name, format)
    first = next(rows, None)
    if first is None:
        raise CorpusError(f"{name}: no row; expected a header line and rows below it.")
    header = [cell.strip() for cell in first[1]]
    if column in header:
        index = header.index(column)
    elif column.isdecimal() and 1 <= int(column) <= len(header):
        index = int(column) - 1
        yield RowText(first[0], first[1][index])
    else:
        raise no_column(f"{name}:{first[0]}", column, header, format)
    width = len(header)
    for line, cells in rows:
        if len(cells) != width:
            raise CorpusError(
                f"{name}:{line}: {counted(len(cells), 'cell')}, expected {width} as in the first row.\n"
                "  A stray separator or quote? Quote cells that hold a separator, or write JSON lines."
            )
        yield RowText(line, cells[index])


def _rows(lines: _Lines, name: str, format: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the number of their first line; blank lines are passed over."""
    if (first := next(lines, None)) is None:
        return
    separator = Separator("\t", False) if format == "tsv" else separator_of(first)
    options: dict[str, Any] = {"delimiter": separator.character}
    if format == "tsv" and not first.startswith('"'):
        options["quoting"] = csv.QUOTE_NONE
    if not separator.in_first_line:
        lines.put_back(first)
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(lines, strict=True, **options)
    before = int(separator.in_first_line)
    line = before + 1
    try:
        for cells in reader:
            lines.row_ends()
            if cells:
                yield line, cells
            line = before + reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(f"{name}:{line}: not {format.upper()}: {error}. An unclosed quote?") from None


class _Lines:
    """Lines of a table with their line ends, which quoted cells keep; a row of many megabytes is refused."""

    def __init__(self, text: IO[str], name: str) -> None:
        self._text = text
        self._name = name
        self._waiting: list[str] = []
        self._number = self._row = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self._waiting:
            return self._waiting.pop()
        try:
            line = self._text.readline(_LONGEST_ROW)
        except UnicodeDecodeError:
            raise CorpusError(
                f"{self._name}:{self._number + 1}: not UTF-8 at or near this line.\n"
                "  Name the file's encoding with --encoding NAME, for example cp1252."
            ) from None
        if not line:
            raise StopIteration
        self._number += 1
        self._row += len(line)
        if self._row >= _LONGEST_ROW:
            raise CorpusError(
                f"{self._name}:{self._number}: a row of more than {_LONGEST_ROW >> 20} MB. An unclosed quote?"
            )
        return line.replace("\0", "") if "\0" in line else line

    def put_back(self, line: str) -> None:
        """Return this line again as the next one."""
        self._waiting.append(line)

    def row_ends(self) -> None:
        """Note that the next line starts a new row."""
        self._row = 0


def even(lines: Sequence[str], separator: str) -> bool:
    """Whether these lines look like the rows of one table: three or more, all with as many cells as the first, two or more."""
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator)
    try:
        widths = [len(cells) for cells in reader if cells]
    except csv.Error:
        return False
    # The last row may be cut within a quoted cell.
    return len(widths) >= 3 and len(set(widths[:-1])) == 1 and widths[0] > 1 and (separator == "," or widths[-1] == widths[0])
