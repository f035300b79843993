"""Texts for the verbs that use a checkpoint: arguments, a file or standard input, as lines or JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cloze.corpus.readers.text_files import is_json_lines, json_lines, lines, string_field
from cloze.errors import TaskError

_TEXT_FILES = (".txt", ".tsv", ".csv", ".gz", ".xz", ".jsonl", ".ndjson", ".json")


def _refuse_file_name(text: str) -> None:
    """A `TaskError` for an argument that is plainly a file's name, whose letters would else be taken for the text."""
    if Path(text).suffix.lower() not in _TEXT_FILES or any(c.isspace() for c in text):
        return
    there = "is a file, not a text." if Path(text).is_file() else "looks like a file's name, and there is no such file."
    raise TaskError(f"{text}: {there}\n  Its lines are read with --file {text}; to take the name itself as a text, pipe it in.")


def gather(given: Sequence[str], file: str | None, *, field: str = "text", json_input: bool | None = None) -> list[str]:
    """The texts of a verb: its arguments if there are any, else the lines of `file` or of standard input.

    Empty lines are kept, so that results stay aligned with their input. A JSON-lines file gives `field` of every record;
    standard input is read as JSON lines when `json_input` says so.
    """
    if given and file is not None:
        raise TaskError("give texts or --file, not both.")
    if given:
        for text in given:
            _refuse_file_name(text)
        return list(given)
    source = file if file is not None else "-"
    if source == "-" and sys.stdin.isatty():
        raise TaskError("no text given. Write it after the checkpoint, or use --file PATH, or pipe it in.")
    if json_input or (json_input is None and is_json_lines(source)):
        found = [string_field(source, number, record, field) for number, record in json_lines(source)]
    else:
        found = [line.text for line in lines(source)]
    if not found:
        raise TaskError(f"{'standard input' if source == '-' else source}: empty, expected one text per line.")
    return found


