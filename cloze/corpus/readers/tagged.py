"""Texts whose words are labelled: a word a line with empty lines between texts (CoNLL), CoNLL-U, or JSON lines with lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.corpus.readers.labelled import Format
from cloze.corpus.readers.text_files import Line, is_json_lines, json_lines, lines
from cloze.errors import TaskError, nearest

#: The columns of CoNLL-U (universaldependencies.org/format.html).
CONLL_U = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_SENTENCES = '  Whole sentences, to be cut at spaces, are JSON lines: {"text": "It rains ."}'
_BETWEEN = "-DOCSTART-"  # stands alone between documents of CoNLL-2003
_Rows = list[tuple[int, list[str]]]  # the cells of each word of a text, with their line


@dataclass(frozen=True)
class Tagged:
    """Texts as words, the label of each word (None where a file has none), the file, and the line each text begins at."""

    words: list[tuple[str, ...]]
    labels: list[tuple[str, ...]] | None
    path: str
    lines: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)


def read_tagged(
    path: Path | str, *, text: str, label: str, columns: Sequence[str] | None, format: Format | None, labelled: bool
) -> Tagged:
    """The texts of a file; without `labelled` labels are read if the column is there.

    JSON lines: `text` and `label` are lists of strings; a text that is a string is cut at spaces. Other files have a word a line,
    cells between tabs (or between spaces, where the first line has no tab) and an empty line behind a text; `columns` names the
    cells, by default those of CoNLL-U in a file of that name and else `text` and `label`. Lines of CoNLL-U that are comments,
    ranges (1-2) or empty nodes (1.1) are passed over.
    """
    if format == "csv" or format is None and ".csv" in Path(path).suffixes[-2:]:
        where = "--format csv" if format else path
        raise TaskError(f"{where}: texts of labelled words are in lines (tsv: a word a line) or JSON lines (jsonl).")
    if format == "jsonl" or format is None and is_json_lines(path):
        found = _json(path, text, label, labelled)
    else:
        found = _lines(path, text, label, columns, labelled)
    if not found.words:
        raise TaskError(f"{path}: no texts; expected a word with its label in every line and an empty line behind each text.")
    return found


def _json(path: Path | str, text: str, label: str, labelled: bool) -> Tagged:
    words, labels, numbers = [], [], []
    for number, record in json_lines(path):
        words.append(_listed(path, number, record, text, "--text"))
        numbers.append(number)
        if labelled or label in record:
            labels.append(_listed(path, number, record, label, "--label"))
            if (sizes := (len(words[-1]), len(labels[-1])))[0] != sizes[1]:
                raise TaskError(f"{path}:{number}: {sizes[0]} words and {sizes[1]} labels; expected as many of both.")
    if labels and len(labels) < len(words):
        raise TaskError(f"{path}: only {len(labels)} of {len(words)} texts have {label!r}; expected all or none.")
    return Tagged(words, labels or None, str(path), tuple(numbers))


def _listed(path: Path | str, number: int, record: dict[str, Any], name: str, option: str) -> tuple[str, ...]:
    if name not in record:
        raise TaskError(f"{path}:{number}: no field {name!r}. {nearest(name, record)} Choose with {option} NAME.")
    value = record[name].split() if isinstance(record[name], str) and option == "--text" else record[name]
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one.strip() for one in value):
        raise TaskError(f"{path}:{number}: {name!r} is no list of words; expected strings that are not empty: [\"A\", \"word\"].")
    return tuple(one.strip() for one in value)


def _lines(path: Path | str, text: str, label: str, columns: Sequence[str] | None, labelled: bool) -> Tagged:
    universal = Path(path).name.removesuffix(".gz").removesuffix(".xz").endswith(".conllu")
    texts = list(_texts(path, universal))
    if not texts:
        return Tagged([], None, str(path), ())
    names = tuple(columns) if columns else CONLL_U if universal else (text, label)[: len(texts[0][0][1])]
    for number, cells in (row for rows in texts for row in rows):
        if len(cells) != len(names):
            raise TaskError(
                f"{path}:{number}: {len(cells)} cells, expected {len(names)} ({', '.join(names)}).\n"
                + (
                    "  Correct the line; if it is the last, the file was cut off: copy it again."
                    if number != texts[0][0][0]
                    else f"  Name every column of the file, in their order: --columns {text},x,{label}.\n{_SENTENCES}"
                )
            )
    words = _column(path, texts, names, text, "--text")
    if not universal:
        _refuse_sentences(path, texts, names, text)
    labels = _column(path, texts, names, label, "--label") if labelled or label in names else None
    return Tagged(words, labels, str(path), tuple(rows[0][0] for rows in texts))


def _refuse_sentences(path: Path | str, texts: Sequence[_Rows], names: Sequence[str], text: str) -> None:
    """A `TaskError` for a table of whole sentences, whose every cell would else be one long word."""
    number, cells = texts[0][0]
    if len(names) > 1 and cells == list(names):
        raise TaskError(
            f"{path}:{number}: this line is a header ({', '.join(cells)}); a file of labelled words has none.\n"
            f"  Delete the line if each of the others is a word and its label. {_SENTENCES.strip()}"
        )
    place = names.index(text)
    spaced = [(line, row[place]) for rows in texts for line, row in rows if " " in row[place]]
    if 2 * len(spaced) > sum(map(len, texts)):
        line, word = spaced[0]
        raise TaskError(
            f"{path}:{line}: {word[:40]!r} is no word; expected a word a line and an empty line behind each text.\n{_SENTENCES}"
        )


def _texts(path: Path | str, universal: bool) -> Iterator[_Rows]:
    rows: _Rows = []
    tabs: bool | None = None
    for line in [*lines(path), Line(0, "")]:
        if not line.text.strip():
            if rows and not (len(rows) == 1 and rows[0][1][0] == _BETWEEN):
                yield rows
            rows = []
            continue
        if universal and line.text.startswith("#"):
            continue
        tabs = "\t" in line.text if tabs is None else tabs
        cells = [cell.strip() for cell in (line.text.split("\t") if tabs else line.text.split())]
        if universal and not cells[0].isdecimal():
            continue
        rows.append((line.number, cells))


def _column(
    path: Path | str, texts: Sequence[_Rows], names: Sequence[str], name: str, option: str
) -> list[tuple[str, ...]]:
    if name not in names:
        raise TaskError(
            f"{path}: no column {name!r}; it has: {', '.join(names)}.\n"
            + (
                "  Of CoNLL-U choose words and labels, for example: --text form --label upos"
                if names == CONLL_U
                else f"  Choose with {option} NAME, or name the columns of the file: --columns text,label"
            )
        )
    place = names.index(name)
    for number, cells in (row for rows in texts for row in rows):
        if not cells[place]:
            raise TaskError(f"{path}:{number}: an empty {name!r}; expected one in every line.")
    return [tuple(cells[place] for _, cells in rows) for rows in texts]
