"""Texts for the verbs that use a checkpoint: arguments, a file or standard input, as lines, or as the column of rows."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cloze.corpus.readers.fasttext import PREFIX, without_labels
from cloze.corpus.readers.hub_tables import with_local_tables
from cloze.corpus.readers.labelled import read_rows, table_format
from cloze.corpus.readers.objects import holds_objects, objects
from cloze.corpus.readers.text_files import lines, string_field
from cloze.errors import Parameter, Phrase, TaskError, nearest_path, spelled_by

_TEXT_FILES = (".txt", ".gz", ".xz", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow")  # of which each line or record is a text
_LABELLED_WORDS = (".conll", ".conllu")
FIELD = Parameter("field", "NAME", "option")


def named_file(arguments: Sequence[str], *, tables: bool = False) -> str | None:
    """The file that the arguments name, None where they are texts; with `tables` it may be a folder or a table, too.

    A path that exists is a file; a single word without an ending is one only with `tables`. An argument that looks like the name
    of a file is a `TaskError` if there is no such file, or if it stands among other texts: otherwise the name itself would be
    read as a text.
    """
    for text in arguments:
        exists = bool(text) and os.path.exists(text)
        suffix = kind_of_file(text)
        is_table = table_format(text) is not None
        looks_like_file = is_table or suffix in _TEXT_FILES or suffix in _LABELLED_WORDS
        path = Path(text)  # a word may also be the name of a file
        is_path = exists and bool(path.suffix or (path.name and ("/" in text or os.sep in text)))
        if not (looks_like_file or is_path or (tables and exists)) or (not exists and any(c.isspace() for c in text)):
            continue
        if not exists:
            raise TaskError(
                f"{text}: looks like a file's name, and there is no such file. {nearest_path(Path(text))}".rstrip()
                + "\n  If this is a text and not a file's name, pipe it in."
            )
        if len(arguments) > 1:
            raise TaskError(f"{text}: is a file, among other texts. Give it alone; cloze then reads one text per line.")
        if not tables and os.path.isdir(text):
            raise TaskError(f"{text}: is a folder, expected a file with texts.\n  If this is a text and no folder, pipe it in.")
        if not tables and is_table:
            raise TaskError(f"{text}: is a table, not a text.\n  To read the texts of a column: --file {text} --field NAME")
        if not tables and suffix in _LABELLED_WORDS:
            raise TaskError(f"{text}: holds labelled words, not a text.\n  To read each of its lines as a text: --file {text}")
        return text
    return None


def kind_of_file(name: str) -> str:
    """The ending of a file's name that says what it holds: `.tsv` of A.tsv and of A.tsv.xz, `.xz` of A.xz."""
    path = Path(name)
    inner = path.with_suffix("").suffix if path.suffix in (".gz", ".xz") else ""
    return (inner or path.suffix).lower()


def holds_rows(path: Path | str) -> bool:
    """Whether a file has rows with named cells: it is a table by its name, or holds objects."""
    return table_format(path) is not None or holds_objects(path)


def column_texts(path: Path | str, column: str, parameter: Parameter, *, otherwise: str = "") -> Iterator[tuple[int, str]]:
    """The texts in a column of a file with rows, each with its line, in constant memory.

    `parameter` chooses the column. Without one of this name, a `TaskError` says so, and what to do `otherwise`.
    """

    def spelling(phrase: Phrase) -> str | None:
        """How an error names parameters of tables, which the verbs do not have."""
        if phrase.parameter.key == parameter.key:
            return None if parameter.value else "Rename the column"
        return {"columns": otherwise, "quoting": ""}.get(phrase.parameter.key)

    with spelled_by(spelling):
        yield from ((line, text) for line, (text,) in read_rows(path, {column: parameter}))


def gather(
    arguments: Sequence[str], file: str | None, *, field: str | None = None, json_input: bool | None = None,
    way_out: str = "Write them to a file whose name ends in .jsonl, and name it.",
) -> list[str]:
    """The texts of a verb: its arguments if there are any, else those of `file` or of standard input.

    One argument that names a file means the file's texts. Of a table, JSON lines or Parquet, these are the cells of the column
    `field`, one for each row; None: the column is `text`, and the user cannot choose another. Of any other file they are the
    lines, also empty ones, so that results stay aligned with their input. Standard input has lines, or JSON lines when
    `json_input` says so. Of lines as fastText reads them, the labels are left out. Lines that are JSON objects with the column
    are a `TaskError` with the `way_out`: nobody means their braces.
    """
    if arguments and file is not None:
        raise TaskError(f"{arguments[0][:40]!r} and --file {file}: give texts or --file, not both.")
    file = named_file(arguments) if arguments else file
    if arguments and file is None:
        return list(arguments)
    source = with_local_tables(file) if file is not None else "-"
    if source == "-" and sys.stdin.isatty():
        raise TaskError("no text given. Write texts, or the name of a text file, after the checkpoint; or pipe the text in.")
    column = field or "text"
    if json_input or (json_input is None and holds_objects(source)):
        read = objects(source, format="jsonl" if json_input else None, only=(column,))
        texts = [string_field(source, number, record, column) for number, record in read]
    elif table_format(source) is not None:
        choice, otherwise = FIELD, "; to read every line as a text, pipe the file in."
        if field is None:
            choice, otherwise = Parameter("field"), ", or write one text per line to a .txt file."
        texts = [text for _, text in column_texts(source, column, choice, otherwise=otherwise)]
    else:
        texts = [line.text for line in lines(source)]
        first = next(filter(str.strip, texts), "").lstrip()
        if first.startswith(PREFIX):
            texts = list(map(without_labels, texts))
        if _is_object_with(column, first):
            where = "standard input" if source == "-" else source
            raise TaskError(f"{where}: its lines are JSON objects with {column!r}, expected texts.\n  {way_out}")
    if not texts:
        raise TaskError(f"{'standard input' if source == '-' else source}: empty, expected one text per line.")
    return texts


def _is_object_with(column: str, line: str) -> bool:
    """Whether a line is a JSON object that has a column."""
    try:
        record = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return False
    return isinstance(record, dict) and column in record
