"""Texts for the verbs that use a checkpoint: arguments, a file or standard input, as lines or JSON lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cloze.corpus.readers.fasttext import PREFIX, without_labels
from cloze.corpus.readers.hub_tables import with_local_tables
from cloze.corpus.readers.objects import holds_objects, objects
from cloze.corpus.readers.text_files import lines, string_field
from cloze.errors import TaskError, nearest_path

_TEXT_FILES = (".txt", ".gz", ".xz", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow")  # of which each line or record is a text
_TABLES = (".tsv", ".tab", ".csv", ".conll", ".conllu")


def named_file(arguments: Sequence[str], *, tables: bool = False) -> str | None:
    """The file that the arguments name, None where they are texts; with `tables` it may be a folder or a table, too.

    A `TaskError` for an argument that is plainly a file's name and names none, or names one among others: its letters would
    else be taken for a text.
    """
    for text in arguments:
        exists = bool(text) and os.path.exists(text)
        suffix = kind_of_file(text)
        text_or_table = suffix in _TEXT_FILES or suffix in _TABLES
        if not (text_or_table or (tables and exists)) or (not exists and any(c.isspace() for c in text)):
            continue
        if not exists:
            raise TaskError(
                f"{text}: looks like a file's name, and there is no such file. {nearest_path(Path(text))}".rstrip()
                + "\n  If this is a text and not a file's name, pipe it in."
            )
        if len(arguments) > 1:
            raise TaskError(f"{text}: is a file, among other texts. Give it alone; cloze then reads one text per line.")
        if not tables and suffix in _TABLES:
            raise TaskError(f"{text}: is a table, not a text.\n  To read each of its lines as a text: --file {text}")
        return text
    return None


def kind_of_file(name: str) -> str:
    """The ending of a file's name that says what it holds: `.tsv` of A.tsv and of A.tsv.xz, `.xz` of A.xz."""
    path = Path(name)
    inner = path.with_suffix("").suffix if path.suffix in (".gz", ".xz") else ""
    return (inner or path.suffix).lower()


def gather(arguments: Sequence[str], file: str | None, *, field: str = "text", json_input: bool | None = None) -> list[str]:
    """The texts of a verb: its arguments if there are any, else the lines of `file` or of standard input.

    One argument that names a file means the file's lines. Empty lines are kept, so that results stay aligned with their
    input. A file of JSON lines or Parquet gives `field` of every record; standard input is read as JSON lines when `json_input`
    says so. Of lines as fastText reads them, the labels are left out.
    """
    if arguments and file is not None:
        raise TaskError(f"{arguments[0][:40]!r} and --file {file}: give texts or --file, not both.")
    file = named_file(arguments) if arguments else file
    if arguments and file is None:
        return list(arguments)
    source = with_local_tables(file) if file is not None else "-"
    if source == "-" and sys.stdin.isatty():
        raise TaskError("no text given. Write texts, or the name of a text file, after the checkpoint; or pipe the text in.")
    if json_input or (json_input is None and holds_objects(source)):
        read = objects(source, format="jsonl" if json_input else None, only=(field,))
        texts = [string_field(source, number, record, field) for number, record in read]
    else:
        texts = [line.text for line in lines(source)]
        if next(filter(str.strip, texts), "").lstrip().startswith(PREFIX):
            texts = list(map(without_labels, texts))
    if not texts:
        raise TaskError(f"{'standard input' if source == '-' else source}: empty, expected one text per line.")
    return texts


