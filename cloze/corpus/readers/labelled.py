"""Tables of labelled text: TSV, CSV, JSON lines and Parquet with named columns, every cell with the line it comes from."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.fasttext import COLUMNS as FASTTEXT
from cloze.corpus.readers.fasttext import fasttext_rows, is_fasttext
from cloze.corpus.readers.formats import Separator, other_separator, separator_of
from cloze.corpus.readers.judgments import COLUMNS as JUDGED
from cloze.corpus.readers.judgments import is_qrels, relevant_rows
from cloze.corpus.readers.objects import OBJECTS, fields_of, objects
from cloze.corpus.readers.pictured.films import is_pickle
from cloze.corpus.readers.text_files import is_json_lines, lines, open_text
from cloze.corpus.readers.unusable import Fault, FaultCounter, unusable
from cloze.errors import Parameter, Phrase, TaskError, counted, did_you_mean, nearest, propose

Format = Literal["tsv", "csv", "jsonl", "parquet", "fasttext", "qrels"]  # parquet: Arrow, too
Quoting = Literal["auto", "none", "standard"]
_SEPARATED: Mapping[str, Literal["tsv", "csv"]] = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv"}
#: Error messages spell other options of a verb as this parameter, or the parameter `like`, is spelled (`Parameter.sibling`).
OPTION = Parameter("corpus.text", "NAME", "option")
NumberedCells = tuple[int, list[str]]  # a row: the number of its first line, and its cells


@dataclass(frozen=True)
class Trained:
    """What a model was trained on: the columns of its files, if they had no header, how they were written, if that was named, and
    its labels."""

    columns: tuple[str, ...] | None = None
    format: Format | None = None
    quoting: Quoting = "auto"
    labels: frozenset[str] = frozenset()

    def columns_of(self, first: Sequence[str]) -> tuple[str, ...] | None:
        """The columns of a file with this first row, if it is one of data: as wide as in training, and without their names."""
        names = self.columns or ()
        return names if len(names) == len(first) and not set(names) & set(map(str.strip, first)) else None


UNTRAINED = Trained()


@dataclass(frozen=True)
class TextTable:
    """A file's cells as text. `lines` holds the line of each row, in Parquet its number; a cell that an object lacks is None."""

    path: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str, parameter: Parameter | None = None) -> list[str]:
        """The cells of a column; `parameter` chooses it, None: it always has this name. Faults are `TaskError`s."""
        index = place_of(self.path, self.columns, name, parameter or Parameter(name, f"column {name}", "words"))
        cells = []
        for row, line in zip(self.rows, self.lines, strict=True):
            cell = row[index]
            if cell is None:
                raise TaskError(f"{self.path}:{line}: {_no_value(name)}")
            cells.append(cell)
        return cells


def as_format(name: str | None) -> Format | None:
    """A format by name, None for "by the file's name"; an unknown one is a `TaskError`."""
    if name is not None and name not in get_args(Format):
        raise TaskError(f"unknown format {name!r}. {propose(name, get_args(Format))}")
    return cast(Format | None, name)


def as_quoting(name: str) -> Quoting:
    """A way of quoting by name; an unknown one is a `TaskError`."""
    if name not in get_args(Quoting):
        raise TaskError(f"unknown quoting {name!r}. {propose(name, get_args(Quoting))}")
    return cast(Quoting, name)


def read_table(
    path: Path | str,
    *,
    format: Format | None = None,
    columns: Sequence[str] | None = None,
    quoting: Quoting = "auto",
    trained: Trained = UNTRAINED,
    lists: bool = False,
) -> TextTable:
    """Read a table; `.gz` and `.xz` are unpacked and `-` is standard input.

    `columns` names the columns of a file that has no header line; a first row of these names is one. Without it, a file that is
    written as those of training has their columns. With `lists`, all cells of a row may be lists. Quoting: in CSV `"` quotes a
    cell and `""` is a quote (RFC 4180). In TSV a quote is an ordinary character, as in GLUE's files, unless only the other
    reading makes every row as wide as the header. A quoted cell with doubled quotes inside is always unquoted. `quoting`
    overrides this.
    """
    kind = format or _format(path, usual=trained.format)
    quoting = trained.quoting if quoting == "auto" else quoting
    if kind in OBJECTS:
        table = _object_table(path, kind, lists)
    else:
        names, numbered_rows = _separated(path, kind, columns, quoting, trained=trained)
        records = list(numbered_rows)
        table = TextTable(str(path), names, tuple(tuple(cells) for _, cells in records), tuple(line for line, _ in records))
    if not table.rows:
        raise _no_examples(path, kind, columns)
    return table


def table_format(path: Path | str) -> Literal["tsv", "csv"] | None:
    """How the name of a file says that the cells of a table are separated, also of A.tsv.gz; None: it says nothing of a table."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in (".gz", ".xz")]
    return _SEPARATED.get(suffixes[-1]) if suffixes else None


def _format(path: Path | str, like: Parameter = OPTION, usual: Format | None = None) -> Format:
    """The format by the name of a file; `usual` where the name does not tell it."""
    if is_columnar(path):
        return "parquet"
    if is_qrels(path):
        return "qrels"
    if Path(path).is_dir():
        raise TaskError(f"{path}: is a folder, expected a file. A folder per class is read by --task sentence_classification.")
    if is_json_lines(path) or is_pickle(path):
        return "jsonl"
    if (kind := table_format(path)) is not None:
        return kind
    if usual is not None:
        return usual
    if is_fasttext(path):
        return "fasttext"
    raise TaskError(
        f"{path}: cannot tell the format from the name {Path(path).name!r}; known: .tsv, .csv, .jsonl, .parquet, also .gz, .xz, "
        "and lines that begin with __label__.\n",
        "  Files of labelled words are for --task token_labelling, and its folders."
        if ".conll" in "".join(Path(path).suffixes)
        else Phrase("  Name the format: tsv, csv, jsonl or parquet, such as ", like.sibling("format", "tsv")),
    )


def _object_table(path: Path | str, format: Format, lists: bool) -> TextTable:
    records = list(objects(path, format=format))
    if len(records) == 1 and not lists:
        _refuse_columns_object(path, {name: _cell(value) for name, value in records[0][1].items()})
    names = list(dict.fromkeys(name for _, record in records for name in record))
    rows = tuple(tuple(_cell(record.get(name)) for name in names) for _, record in records)
    return TextTable(str(path), tuple(names), rows, tuple(number for number, _ in records))


def read_rows(
    path: Path | str, parameters: Mapping[str, Parameter], *, format: Format | None = None, columns: Sequence[str] | None = None,
    quoting: Quoting = "auto", fault: Fault | None = None, lists: bool = False,
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The cells of some columns, row by row with the line where each begins, in constant memory (see `read_table`).

    `parameters` maps each column to the parameter that chooses it. Errors are those of `read_table` and of
    `TextTable.column`; a row that cannot be used is reported to `fault`, if there is one, and left out.
    """
    like = next(iter(parameters.values()), OPTION)
    kind = format or _format(path, like)
    if str(path) == "-" and kind != "parquet":  # it cannot be read twice
        table = read_table(path, format=kind, columns=columns, quoting=quoting)
        cells = [table.column(name, parameter) for name, parameter in parameters.items()]
        yield from zip(table.lines, zip(*cells, strict=True), strict=True)
        return
    if kind in OBJECTS:
        yield from _object_rows(path, parameters, kind, fault, lists)
        return
    names, rows = _separated(path, kind, columns, quoting, fault, like)
    places = [place_of(str(path), names, name, parameter) for name, parameter in parameters.items()]
    empty = True
    for line, row in rows:
        empty = False
        yield line, tuple(row[index] for index in places)
    if empty:
        raise _no_examples(path, kind, columns)


def _object_rows(
    path: Path | str, parameters: Mapping[str, Parameter], format: Format, fault: Fault | None, lists: bool
) -> Iterator[tuple[int, tuple[str, ...]]]:
    empty, fields = True, None
    faults = FaultCounter(fault)
    records = objects(path, faults.report, format=format, only=parameters)
    for number, record in records if lists else _without_columns_object(path, records, parameters):
        cells = tuple(_cell(record.get(name)) for name in parameters)
        if None in cells:
            name, parameter = list(parameters.items())[cells.index(None)]
            if empty:  # is it missing here, or everywhere?
                fields = fields_of(path, format=format) if fields is None else fields
                place_of(str(path), fields, name, parameter)
            unusable(path, number, _no_value(name), fault=faults.report)
            continue
        empty = False
        yield number, tuple(cell for cell in cells if cell is not None)
    if empty and not faults.count:
        raise _no_examples(path, format, None)


def _without_columns_object(
    path: Path | str, records: Iterator[tuple[int, dict[str, Any]]], parameters: Mapping[str, Parameter]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records; the only one of a file must be a row."""
    first, second = next(records, None), next(records, None)
    if first is not None and second is None:
        _refuse_columns_object(path, {name: _cell(first[1].get(name)) for name in parameters})
    yield from chain([record for record in (first, second) if record is not None], records)


def _fasttext_cells(path: Path | str) -> Iterator[NumberedCells]:
    """The text and the labels of each line; a single label is no list."""
    for row in fasttext_rows(path):
        yield row.line, [row.text, row.labels[0] if len(row.labels) == 1 else _list_cell(row.labels) if row.labels else ""]


def _refuse_columns_object(path: Path | str, cells: Mapping[str, str | None]) -> None:
    """Refuse the only object of a file if it holds columns instead of a row."""
    sizes = {len(cell.items) if isinstance(cell, ListCell) else 0 for cell in cells.values()}
    if len(cells) > 1 and len(sizes) == 1 and min(sizes) > 1:
        raise TaskError(
            f"{path}: one object with lists of {min(sizes):,} values each: columns, not rows.\n"
            "  Write an object per row; in pandas: frame.to_json(FILE, orient='records', lines=True)"
        )


def _no_examples(path: Path | str, format: Format, columns: Sequence[str] | None) -> TaskError:
    kind = {"jsonl": "JSON object per line", "parquet": "row"}.get(format, "header line and a row below it")
    kind = "row" if columns else kind
    return TaskError(f"{path}: no examples; expected at least one {kind}.")


def _no_value(name: str) -> str:
    return f"no value for {name!r}; expected one in every row."


def place_of(path: str, columns: Sequence[str], name: str, parameter: Parameter) -> int:
    """The place of a column, which `parameter` chooses. A missing column is a `TaskError`."""
    if name in columns:
        return list(columns).index(name)
    listing = ", ".join(column if len(column) <= 40 else column[:40] + "…" for column in columns)
    if hint := _renaming(path, columns):
        raise TaskError(f"{path}: no column {name!r}; it has: {listing}.\n  {hint}", _unnamed(parameter))
    hint = did_you_mean(nearest(name, columns))
    chosen = Phrase(f"{hint} Choose a column with ".lstrip(), parameter)
    raise TaskError(f"{path}: no column {name!r}; it has: {listing}.\n  ", chosen, _unnamed(parameter))


def _renaming(path: Path | str, cells: Sequence[str]) -> str:
    """How to name a table whose name says another separator than its first row has, a row of one cell; "" for any other."""
    separators, right = other_separator(cells, table_format(path) or "")
    if not separators:
        return ""
    stem, _, packed = Path(path).name.rpartition(f".{table_format(path)}")
    return f"If {separators} separate its columns, name it {stem}.{right}{packed}"


def _unnamed(like: Parameter) -> Phrase:
    """What to do if the first line of a file holds no names; `like` is a parameter of the same section."""
    return Phrase("; if the file has no header, name all columns in order: ", like.sibling("columns", ("A", "B")))


def names_of(
    path: Path | str, *, format: Format | None = None, columns: Sequence[str] | None = None, quoting: Quoting = "auto"
) -> tuple[str, ...]:
    """The names of the columns of a file."""
    kind = format or _format(path)
    if kind in OBJECTS:
        return fields_of(path, format=kind)
    return _separated(path, kind, columns, quoting)[0]


class NumberCell(str):
    """A number of a JSON object as the text that a table would hold."""


class ListCell(str):
    """A list of a JSON object as the text that a table would hold; `items` are its members, as cells."""

    items: tuple[str | None, ...]


def single_class(cell: str, column: str) -> str:
    """The class in a cell of a column, also of a list with one member; a `ValueError` with the reason for several and none."""
    classes = [member or "" for member in members(cell)]
    if len(classes) > 1:
        raise ValueError(f"{column!r} holds {len(classes)} classes; expected one. For several in a row: --task multi_label")
    name = "".join(classes).strip()
    if not name:
        raise ValueError(f"an empty {column!r}; expected a label in every row.")
    return name


def members(cell: str) -> tuple[str | None, ...]:
    """The members of a cell that is a list, None for null; any other cell is its only member."""
    return cell.items if isinstance(cell, ListCell) else (cell,)


def _cell(value: Any) -> str | None:
    """A JSON value as the text a table would hold: `1` for 1 and 1.0, `true` for true; None for null and NaN."""
    if isinstance(value, float) and value != value:  # NaN, which pandas writes for a missing value
        return None
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return _list_cell(value)
    if isinstance(value, float) and value.is_integer():
        return NumberCell(int(value))
    text = json.dumps(value, ensure_ascii=False)
    return text if isinstance(value, (dict, bool)) else NumberCell(text)


def _list_cell(values: Sequence[Any]) -> ListCell:
    cell = ListCell(json.dumps(values, ensure_ascii=False))
    cell.items = tuple(map(_cell, values))
    return cell


def _separated(
    path: Path | str, format: Format, columns: Sequence[str] | None, quoting: Quoting, fault: Fault | None = None,
    like: Parameter = OPTION, trained: Trained = UNTRAINED,
) -> tuple[tuple[str, ...], Iterator[NumberedCells]]:
    """The names of the columns, and the rows; each is as wide as the header."""
    if format == "fasttext":
        return FASTTEXT, _fasttext_cells(path)
    if format == "qrels":
        return JUDGED, relevant_rows(path)
    separator = Separator("\t", False) if format == "tsv" else separator_of(next((line.text for line in lines(path)), ""))
    chosen = quoting if quoting != "auto" else "none" if format == "tsv" else "standard"
    unquoting = False
    if quoting == "auto" and format == "tsv" and any('"' in line.text for line in lines(path)):
        quoted = not _even(_records(path, separator, "none"), columns) and _even(
            _records(path, separator, "standard", strict=False), columns
        )
        chosen, unquoting = ("standard" if quoted else "none"), not quoted
    records = _records(path, separator, chosen, strict=not (quoting == "auto" and format == "tsv"), like=like)
    if unquoting:
        records = ((line, [_unquoted(cell) for cell in cells]) for line, cells in records)
    first = next(records, None)
    if first is None:
        raise TaskError(f"{path}: empty; expected a header line and at least one row.")
    header = tuple(name.strip() for name in first[1])
    columns = columns or trained.columns_of(header)
    names = tuple(columns) if columns else header
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        way_out = "." if columns else _unnamed(like)
        raise TaskError(f"{path}: two columns are named {twice!r}; expected different names", way_out)
    if header != names:  # the first line is a row
        return names, _as_wide(path, names, chain([first], records), fault, like)
    return names, _without_header(path, first[1], _as_wide(path, names, records, fault, like), fault)


def _without_header(
    path: Path | str, header: list[str], records: Iterable[NumberedCells], fault: Fault | None
) -> Iterator[NumberedCells]:
    """The rows of a table; its header line among them, which files joined end to end have, is a fault."""
    for line, cells in records:
        if cells != header:
            yield line, cells
            continue
        unusable(path, line, "the header line once more. Were several files joined? Take it out.", fault=fault)


def _as_wide(
    path: Path | str, names: Sequence[str], records: Iterable[NumberedCells], fault: Fault | None, like: Parameter
) -> Iterator[NumberedCells]:
    for number, (line, cells) in enumerate(records):
        if len(cells) == len(names):
            yield line, cells
            continue
        message = f"{counted(len(cells), 'cell')}, expected {len(names)} ({', '.join(names)}).\n  "
        if not number and (hint := _renaming(path, cells)):
            unusable(path, line, f"{message}{hint}.", fault=fault)
            continue
        unusable(
            path, line, f"{message}A stray separator or quote? ",
            Phrase("", like.sibling("quoting", "none"), " reads quotes as text; with standard, they enclose cells."), fault=fault,
        )


def _records(
    path: Path | str, separator: Separator, quoting: Quoting, strict: bool = True, like: Parameter = OPTION
) -> Iterator[NumberedCells]:
    """Rows with the number of their first line; blank lines are passed over."""
    before = int(separator.in_first_line)
    if quoting == "none":
        for line in islice(lines(path), before, None):
            if line.text.strip("\r"):
                yield line.number, line.text.split(separator.character)
        return
    csv.field_size_limit(1 << 30)
    begin = before + 1
    with open_text(path) as stream:
        reader = csv.reader(islice(stream, before, None), delimiter=separator.character, strict=strict)
        try:
            for cells in reader:
                if cells:
                    yield begin, cells
                begin = before + reader.line_num + 1
        except csv.Error as error:
            raise TaskError(
                f"{path}:{begin}: {error}. An unclosed quote? ",
                Phrase("", like.sibling("quoting", "none"), " reads quotes as text."),
            ) from None


def _even(records: Iterator[NumberedCells], columns: Sequence[str] | None) -> bool:
    """Whether all rows are as wide as the header."""
    first = next(records, None)
    width = len(columns) if columns else 0 if first is None else len(first[1])
    return (first is None or len(first[1]) == width) and all(len(cells) == width for _, cells in records)


def _unquoted(cell: str) -> str:
    """A cell that some program had to quote: enclosed, with every inner quote doubled and at least one of them."""
    if len(cell) < 4 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inner = cell[1:-1]
    return inner.replace('""', '"') if '""' in inner and '"' not in inner.replace('""', "") else cell
