"""Files of triples: one fact per line, and lists of entities or relations with their texts. Every fault has its file and line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cloze.corpus.readers.text_files import Line, cells_of, lines, stripped
from cloze.corpus.stores.graph import Graph
from cloze.errors import CorpusError, counted
from cloze.knowledge.entities import header_of

COLUMNS = ("head", "relation", "tail")
_OPENKE = ("head", "tail", "relation")
_NAMES = {
    "head": "head", "subject": "head", "subj": "head", "h": "head", "s": "head", "source": "head",
    "relation": "relation", "predicate": "relation", "pred": "relation", "r": "relation", "p": "relation", "rel": "relation",
    "tail": "tail", "object": "tail", "obj": "tail", "t": "tail", "o": "tail", "target": "tail",
}
_SURVEYED = 10_000  # lines by which the order of the columns is judged


@dataclass(frozen=True)
class TripleFile:
    """How one file holds its triples: the order of its columns, what separates them, and the lines before the first triple."""

    path: str
    order: tuple[str, ...]
    separator: str
    skip: int
    said: str

    def rows(self) -> Iterator[tuple[int, tuple[str, str, str]]]:
        """Line, head, relation and tail of each triple. A line without three cells is a `CorpusError`."""
        places = tuple(self.order.index(name) for name in COLUMNS)
        for line in islice(_filled(self.path), self.skip, None):
            cells = _cells(line.text, self.separator)
            if len(cells) != 3 or not all(cells):
                raise self._ragged(line, cells)
            yield line.number, (cells[places[0]], cells[places[1]], cells[places[2]])

    def _ragged(self, line: Line, cells: Sequence[str]) -> CorpusError:
        what = f"{counted(len(cells), 'cell')}, expected 3" if len(cells) != 3 else "an empty cell, expected 3 ids"
        apart = {"\t": "tabs", ",": "commas"}.get(self.separator, "spaces")
        way_out = "Remove what follows the third cell." if len(cells) > 3 else "Complete the line or remove it."
        if self.separator == ",":
            way_out = 'Quote an id that contains a comma: "Paris, Texas".'
        if self.separator == " ":
            way_out = "Ids that contain spaces need a file whose cells are separated by tabs."
        return CorpusError(f"{self.path}:{line.number}: {what} ({', '.join(self.order)}), separated by {apart}.\n  {way_out}")


def triple_file(path: str | Path, columns: Sequence[str] | None = None) -> TripleFile:
    """How a file holds its triples.

    `columns` states the order of its columns. Otherwise a header line states it (head, relation, tail; subject, predicate,
    object), or a first line that is a number says that the file is OpenKE's: head, tail, relation. Any other file has head,
    relation, tail. If the names in its columns contradict this, it is a `CorpusError`: an order is never guessed.
    """
    head = list(islice(_filled(path), _SURVEYED))
    if not head:
        raise CorpusError(f"{path}: no triples; expected a head, a relation and a tail per line, separated by tabs.")
    first, skip, remark = head[0], 0, ""
    order = None if columns is None else _order(columns)
    if len(head) > 1 and _is_number(first.text.strip()):
        skip, remark = 1, f"its first line is the number of its triples, as in OpenKE's files: {', '.join(order or _OPENKE)}"
        order = order or _OPENKE
    begins = head[skip]
    separator = _separator(head[skip:], path)
    header = header_order(_cells(begins.text, separator))
    if header is not None:
        skip, remark = skip + 1, f"its first line names its columns: {', '.join(header)}"
        order = order or header
    file = TripleFile(str(path), order or COLUMNS, separator, skip, remark)
    if order is None:
        _require_order(file, head[skip:])
    return file


def header_order(cells: Sequence[str]) -> tuple[str, ...] | None:
    """The order of the columns that a first line names, such as head, tail, relation; None: the line is a triple."""
    order = tuple(_NAMES.get(cell.lower(), "") for cell in cells)
    return order if sorted(order) == sorted(COLUMNS) else None


def read_triples(path: str | Path, columns: Sequence[str] | None = None) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Line, head, relation and tail of each triple of a file; see `triple_file`."""
    return triple_file(path, columns).rows()


def read_labelled_triples(path: str | Path) -> Iterator[tuple[int, tuple[str, str, str], bool]]:
    """Line, triple, and whether it is a fact, of a file of four columns with tabs between them: head, relation, tail, and 1 for a
    fact, -1 or 0 for none (Socher et al., 2013; `dev.tsv` and `test.tsv` of yao8839836/kg-bert). Any other line is a
    `CorpusError`."""
    for line in _filled(path):
        cells = _cells(line.text, "\t")
        if len(cells) != 4 or not all(cells) or cells[3] not in ("1", "-1", "0"):
            raise CorpusError(
                f"{path}:{line.number}: {line.text[:60]!r}; expected head, relation, tail and a label, with tabs between them.\n"
                "  The label is 1 for a fact, and -1 or 0 for a wrong triple."
            )
        yield line.number, (cells[0], cells[1], cells[2]), cells[3] == "1"


def read_graph(
    paths: Sequence[str | Path], *, columns: Sequence[str] | None = None, entities: str | Path | None = None,
    relations: str | Path | None = None,
) -> Graph:
    """The graph of some files of triples, or of a graph's folder.

    `entities` and `relations` are lists: an id per line, after a tab its name or description. They fix which ids there are: any
    other in a triple is a `CorpusError`. Without them, ids are numbered in order of appearance. A repeated triple counts once.
    """
    if len(paths) == 1 and Graph.is_graph(paths[0]):
        return Graph.open(paths[0])
    listed = {"entity": entities, "relation": relations}
    id_lists = {kind: read_ids(path) for kind, path in listed.items() if path is not None}
    numbers: dict[str, dict[str, int]] = {kind: dict(id_lists[kind].numbers) if kind in id_lists else {} for kind in listed}
    files = [triple_file(path, columns) for path in paths]
    flat_triples: list[int] = []
    total = 0
    for file in files:
        for line, (head, relation, tail) in file.rows():
            for kind, name in (("entity", head), ("relation", relation), ("entity", tail)):
                of = numbers[kind]
                number = of.get(name)
                if number is None:
                    if kind in id_lists:
                        raise _unknown(file.path, line, kind, name, str(listed[kind]), id_lists)
                    number = of[name] = len(of)
                flat_triples.append(number)
            total += 1
    triples = np.array(flat_triples, np.int32).reshape(-1, 3)
    _, first = np.unique(triples, axis=0, return_index=True)
    triples = np.ascontiguousarray(triples[np.sort(first)])
    names = {kind: id_lists[kind].names if kind in id_lists else tuple(numbers[kind]) for kind in listed}
    texts = {kind: ids.texts if any(ids.texts) else None for kind, ids in id_lists.items()}
    report = {
        "files": [{"path": file.path, "order": list(file.order), "said": file.said} for file in files],
        "lines": total, "repeats": total - len(triples),
    }
    return Graph(names["entity"], names["relation"], triples, texts.get("entity"), texts.get("relation"), report)


class Ids(NamedTuple):
    """A list of ids with their texts (empty: none); `numbers` holds the place of each in the list, as triples write it."""

    names: tuple[str, ...]
    texts: tuple[str, ...]
    numbers: Mapping[str, int]


def read_ids(path: str | Path) -> Ids:
    """A list of entities or relations: an id per line, after a tab its text. Files of OpenKE begin with a count, and their second
    column is the number by which their triples name the id. In a table whose first line names its columns
    (`entities.py`), the text is the label, or the description if there are no labels. A repeated id is a `CorpusError`."""
    texts: dict[str, str] = {}
    first: dict[str, int] = {}
    keys: list[str] = []
    file_lines = _filled(path)
    begins = next(file_lines, None)
    if begins is None:
        raise CorpusError(f"{path}: empty; expected an id per line, after a tab its text.")
    numbered = _is_number(begins.text.strip()) and "\t" not in begins.text
    columns = header_of(_cells(begins.text, "\t"), f"{path}:{begins.number}")
    for line in file_lines if numbered or columns else chain([begins], file_lines):
        name, text = _entry(line, columns, path)
        if not name:
            raise CorpusError(f"{path}:{line.number}: no id before the tab; expected an id, then its text.")
        if name in first:
            raise CorpusError(f"{path}:{line.number}: the id {name!r} is already in line {first[name]}. Remove one of the lines.")
        first[name] = line.number
        of_openke = numbered and _is_number(text.strip())
        texts[name] = "" if of_openke else " ".join(text.split())
        keys.append(text.strip() if of_openke else name)
    return Ids(tuple(texts), tuple(texts.values()), {name: number for number, name in enumerate(keys)})


def _entry(line: Line, columns: Sequence[str] | None, path: str | Path) -> tuple[str, str]:
    """The id and the text of a line; without `columns` the text is all that follows the first tab."""
    if columns is None:
        name, _, text = line.text.partition("\t")
        return name.strip(), text
    cells = _cells(line.text, "\t")
    if len(cells) > len(columns):
        raise CorpusError(
            f"{path}:{line.number}: {counted(len(cells), 'cell')}, expected up to {len(columns)}: {', '.join(columns)}."
        )
    by = dict(zip(columns, cells, strict=False))
    return cells[0], by.get("label" if "label" in columns else "description", "")


def _unknown(path: str, line: int, kind: str, name: str, listed: str, ids: Mapping[str, Ids]) -> CorpusError:
    other = "relation" if kind == "entity" else "entity"
    if other in ids and name in ids[other].numbers:
        way_out = "Are the columns in another order? Name them where the graph is built: " + _named("head,tail,relation")
    else:
        option = "entities" if kind == "entity" else "relations"
        way_out = f"Add it to {listed}, or omit --{option} to take the ids of the triples."
    return CorpusError(f"{path}:{line}: the {kind} {name!r} is not in {listed}.\n  {way_out}")


def _require_order(file: TripleFile, head: Sequence[Line]) -> None:
    """Refuse a file whose second column names the things that its first one names, more than its third one does."""
    rows = [cells for line in head if len(cells := _cells(line.text, file.separator)) == 3]
    columns = [{cells[column] for cells in rows} for column in range(3)]
    second, third = len(columns[0] & columns[1]), len(columns[0] & columns[2])
    if second > third:
        raise CorpusError(
            f"{file.path}: the order of its columns is ambiguous: {counted(second, 'id')} of the first column are in the second, "
            f"and {third:,} in the third. That looks like head, tail, relation.\n"
            f"  Build a graph and name the columns: {_named('head,tail,relation', file.path)}\n"
            "  If they are in the usual order: --columns head,relation,tail"
        )


def _named(columns: str, path: str | Path = "FILE") -> str:
    """The command that builds a graph of a file with columns in that order."""
    return f"cloze corpus build {path} --format triples --columns {columns} --out GRAPH"


def _order(columns: Sequence[str]) -> tuple[str, ...]:
    order = tuple(_NAMES.get(name.strip().lower(), name) for name in columns)
    if sorted(order) != sorted(COLUMNS):
        raise CorpusError(f"--columns {','.join(columns)}: expected head, relation and tail in the order of the file.")
    return order


def _filled(path: str | Path) -> Iterator[Line]:
    return (line for line in lines(path) if line.text.strip())


def _separator(head: Sequence[Line], path: str | Path) -> str:
    """What separates the cells of a file that begins with these lines: a tab, a comma, or a space.

    If commas and spaces both give three cells, as in `New York,in,New Zealand`, more lines decide, and a space after each comma.
    """
    first = head[0].text
    if "\t" in first:
        return "\t"
    if ".csv" in Path(path).suffixes[-2:]:
        return ","
    if any(len(_cells(first, separator)) != 3 for separator in ", "):
        return "," if len(_cells(first, ",")) == 3 else " "
    commas, spaces = (sum(len(_cells(line.text, separator)) == 3 for line in head) for separator in ", ")
    if commas == spaces and first.count(", ") != 2:
        raise CorpusError(
            f"{path}:{head[0].number}: commas and spaces both separate three cells: {first[:60]!r}.\n"
            "  Separate the cells by tabs, or by commas in a file whose name ends in .csv."
        )
    return "," if commas >= spaces else " "


def _cells(text: str, separator: str) -> list[str]:
    if separator == " ":
        return cells_of(text)
    return list(map(stripped, text.split("\t") if separator == "\t" else _unquoted(text)))


def _unquoted(text: str) -> list[str]:
    """The cells of a line of CSV."""
    try:
        return next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:  # a cell of many thousands of characters
        return text.split(",")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()

