"""Labelled text as fastText reads it: a text per line, in which words that begin with `__label__` are its labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cloze.corpus.readers.text_files import lines

PREFIX = "__label__"
#: The names of its columns.
COLUMNS = ("text", "label")
_LABEL = re.compile(rf"(?:^|(?<=[ \t])){PREFIX}([^ \t]+)[ \t]*")


_PREFIXED = re.compile(r"(?<!\S)__label").search


class LabelledLine(NamedTuple):
    """A line, its text without the labels, and the labels without their prefix."""

    line: int
    text: str
    labels: tuple[str, ...]


def is_fasttext(path: Path | str) -> bool:
    """Whether the first line of a file that is not empty begins with a label."""
    return str(path) != "-" and next((line.text for line in lines(path) if line.text.strip()), "").lstrip().startswith(PREFIX)


def without_labels(text: str) -> str:
    """A line without its labels."""
    return _LABEL.sub("", text).strip()


def is_prefixed(text: str) -> bool:
    """Whether a word of a text begins as labels do, such as `__labelB__x`.

    >>> is_prefixed("a __labelB__x"), is_prefixed("a__label__x")
    (True, False)
    """
    return _PREFIXED(text) is not None


def fasttext_rows(path: Path | str) -> Iterator[LabelledLine]:
    """The lines of a file; empty ones are skipped."""
    for line in lines(path):
        if line.text.strip():
            yield LabelledLine(line.number, without_labels(line.text), tuple(_LABEL.findall(line.text)))
