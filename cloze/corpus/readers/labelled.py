"""Tables of labelled text: TSV, CSV and JSON lines with named columns, every cell with the line it comes from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from cloze.corpus.readers.text_files import is_json_lines, json_lines, read_all
from cloze.errors import TaskError, nearest

Format = Literal["tsv", "csv", "jsonl"]
Quoting = Literal["auto", "none", "standard"]


@dataclass(frozen=True)
class Table:
    """A file's cells as text. `lines` holds the line of each row; a cell that a JSON object lacks is None."""

    path: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str, option: str) -> list[str]:
        """The cells of a column; `option` is how the user names it, such as `--text`. Faults are `TaskError`s."""
        if name not in self.columns:
            shown = ", ".join(column if len(column) <= 40 else column[:40] + "…" for column in self.columns)
            close = nearest(name, self.columns)
            hint = f"{close} " if close.startswith("Did") else ""
            raise TaskError(
                f"{self.path}: no column {name!r}; it has: {shown}.\n"
                f"  {hint}Choose with {option} NAME; if the file has no header, name all its columns in order: --columns A,B"
            )
        place = self.columns.index(name)
        cells = []
        for row, line in zip(self.rows, self.lines, strict=True):
            cell = row[place]
            if cell is None:
                raise TaskError(f"{self.path}:{line}: no value for {name!r}; expected one in every row.")
            cells.append(cell)
        return cells


def as_format(name: str | None) -> Format | None:
    """A format by name, None for "by the file's name"; an unknown one is a `TaskError`."""
    if name is not None and name not in get_args(Format):
        raise TaskError(f"unknown format {name!r}. {nearest(name, get_args(Format))}")
    return cast(Format | None, name)


def as_quoting(name: str) -> Quoting:
    """A way of quoting by name; an unknown one is a `TaskError`."""
    if name not in get_args(Quoting):
        raise TaskError(f"unknown quoting {name!r}. {nearest(name, get_args(Quoting))}")
    return cast(Quoting, name)


def read_table(
    path: Path | str,
    *,
    format: Format | None = None,
    columns: Sequence[str] | None = None,
    quoting: Quoting = "auto",
) -> Table:
    """Read a table; `.gz` and `.xz` are unpacked and `-` is standard input.

    `columns` names the columns of a file that has no header line. Quoting: in CSV `"` quotes a cell and `""` is a quote
    (RFC 4180). In TSV a quote is a letter like any other, as GLUE's files have it, unless only the other reading makes
    every row as wide as the header; a quoted cell with doubled quotes inside is unquoted either way. `quoting` overrides.
    """
    found = format or _format(path)
    table = _json_table(path) if found == "jsonl" else _separated(path, found, columns, quoting)
    if not table.rows:
        kind = "JSON object per line" if found == "jsonl" else "row" if columns else "header line and a row below it"
        raise TaskError(f"{path}: no examples; expected at least one {kind}.")
    return table


def _format(path: Path | str) -> Format:
    if Path(path).is_dir():
        raise TaskError(f"{path}: is a folder, expected a file. A folder per class is read by --task sentence_classification.")
    suffixes = [s for s in Path(path).suffixes if s not in (".gz", ".xz")]
    last = suffixes[-1] if suffixes else ""
    if is_json_lines(path):
        return "jsonl"
    if last in (".tsv", ".tab"):
        return "tsv"
    if last == ".csv":
        return "csv"
    raise TaskError(
        f"{path}: cannot tell the format from the name {Path(path).name!r}; known: .tsv, .csv, .jsonl, also .gz and .xz.\n"
        + (
            "  Files of labelled words are for --task token_labelling, and for what it made."
            if ".conll" in "".join(suffixes)
            else "  Say it with --format tsv, csv or jsonl."
        )
    )


def _json_table(path: Path | str) -> Table:
    records = list(json_lines(path))
    names = list(dict.fromkeys(name for _, record in records for name in record))
    rows = tuple(tuple(_cell(record.get(name)) for name in names) for _, record in records)
    return Table(str(path), tuple(names), rows, tuple(number for number, _ in records))


def _cell(value: Any) -> str | None:
    """A JSON value as the text a table would hold: `1` for 1 and 1.0, `true` for true."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _separated(path: Path | str, format: Format, columns: Sequence[str] | None, quoting: Quoting) -> Table:
    text = read_all(path)
    separator = "\t" if format == "tsv" else _comma(text)
    chosen = quoting if quoting != "auto" else "none" if format == "tsv" else "standard"
    records = _records(path, text, separator, chosen)
    if quoting == "auto" and format == "tsv" and '"' in text and not _even(records, columns):
        quoted = _records(path, text, separator, "standard", strict=False)
        if _even(quoted, columns):
            records = quoted
    elif quoting == "auto" and format == "tsv":
        records = [(line, [_unquoted(cell) for cell in cells]) for line, cells in records]
    if not records:
        raise TaskError(f"{path}: empty; expected a header line and at least one row.")
    names = list(columns) if columns else [name.strip() for name in records.pop(0)[1]]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TaskError(f"{path}: two columns are called {twice!r}; expected different names.")
    for line, cells in records:
        if len(cells) != len(names):
            raise TaskError(
                f"{path}:{line}: {len(cells)} cells, expected {len(names)} ({', '.join(names)}).\n"
                f"  A stray separator or quote? --quoting none takes quotes as letters, standard lets them enclose."
            )
    return Table(str(path), tuple(names), tuple(tuple(cells) for _, cells in records), tuple(line for line, _ in records))


def _comma(text: str) -> str:
    """`;` where the header line has no comma: spreadsheets write it in half of Europe."""
    header = text.split("\n", 1)[0]
    return ";" if ";" in header and "," not in header else ","


Record = tuple[int, list[str]]


def _records(path: Path | str, text: str, separator: str, quoting: Quoting, strict: bool = True) -> list[Record]:
    """Rows with the number of their first line; blank lines are passed over."""
    if quoting == "none":
        numbered = enumerate(text.split("\n"), start=1)
        return [(n, line.removesuffix("\r").split(separator)) for n, line in numbered if line.strip("\r")]
    csv.field_size_limit(1 << 30)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)
    records, line = [], 1
    try:
        for cells in reader:
            if cells:
                records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise TaskError(
            f"{path}:{line}: {error}. A quote that is not closed? --quoting none takes quotes as letters."
        ) from None
    return records


def _even(records: Sequence[Record], columns: Sequence[str] | None) -> bool:
    """Whether all rows are as wide as the header."""
    width = len(columns) if columns else len(records[0][1]) if records else 0
    return all(len(cells) == width for _, cells in records)


def _unquoted(cell: str) -> str:
    """A cell that some program had to quote: enclosed, with every inner quote doubled and at least one of them."""
    if len(cell) < 4 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inner = cell[1:-1]
    return inner.replace('""', '"') if '""' in inner and '"' not in inner.replace('""', "") else cell
