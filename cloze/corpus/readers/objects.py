"""Rows of labelled text as objects with named fields: JSON lines, the captions of COCO, LXMERT and of films, Parquet, Arrow, and
folders that `datasets` wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from cloze.corpus.readers.columnar import columnar_rows, columns_of, is_columnar
from cloze.corpus.readers.pictured.captions import captions_of, is_coco, is_lxmert, sentences_of
from cloze.corpus.readers.pictured.films import film_captions, films_of_pickle, is_films, is_pickle
from cloze.corpus.readers.pictured.task_rows import task_row
from cloze.corpus.readers.text_files import is_json_lines, json_lines, lines
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.errors import TaskError

#: The formats whose rows are objects; `parquet` includes Arrow, which is recognised by the first bytes of a file.
OBJECTS = frozenset({"jsonl", "parquet"})


def holds_objects(path: Path | str) -> bool:
    """Whether the rows of a file or folder are objects, by its name or its contents."""
    return is_json_lines(path) or is_columnar(path) or is_pickle(path)


def objects(
    path: Path | str, fault: Fault | None = None, *, format: str | None = None, only: Collection[str] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows as objects, each with its line in JSON lines and else with its number, from 1.

    `format` is one of `OBJECTS`; None: by the name. `only`: the fields that are needed; others may be left out. A line that holds
    no object is reported to `fault`, or a `TaskError`.
    """
    if _columnar(path, format):
        yield from columnar_rows(path, only)
    else:
        yield from _json_objects(path, fault)


def refuse_table(path: Path | str, form: str) -> None:
    """Raise a `TaskError` for rows that cells cannot hold, if a file has the name of a table and does not begin like JSON. `form`
    is a row as JSON lines have it."""
    suffix = next((part[1:] for part in Path(path).suffixes[-2:] if part in (".csv", ".tsv")), None)
    first = "" if suffix is None else next((line.text for line in lines(path) if line.text.strip()), "")
    if first and first.lstrip()[0] not in "{[":
        raise TaskError(
            f"{path}: such rows are read from JSON lines or Parquet, not from {suffix}. Write each row as an object into a file "
            f"that ends in .jsonl:\n  {form}"
        )


def fields_of(path: Path | str, *, format: str | None = None) -> tuple[str, ...]:
    """The names of all fields that occur, in the order of their appearance."""
    if _columnar(path, format):
        return columns_of(path)
    return tuple(dict.fromkeys(name for _, record in _json_objects(path, lambda line, why: None) for name in record))


def _json_objects(path: Path | str, fault: Fault | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of JSON lines, those of known tasks with our columns; one that holds the captions of COCO or of films, or the
    sentences of LXMERT, is the rows of these, as is a pickle."""
    if is_pickle(path):
        yield from film_captions(path, films_of_pickle(path))
        return
    sentence_count = 0
    for line, record in json_lines(path, fault):
        if is_coco(record):
            yield from captions_of(path, record)
        elif is_films(record):
            yield from film_captions(path, record)
        elif is_lxmert(record):
            for row in sentences_of(path, line, record):
                sentence_count += 1
                yield sentence_count, row
        else:
            try:
                row = task_row(record)
            except TaskError as error:
                unusable(path, line, str(error), fault=fault)
                continue
            yield line, row


def _columnar(path: Path | str, format: str | None) -> bool:
    return is_columnar(path) if format is None else format != "jsonl"
