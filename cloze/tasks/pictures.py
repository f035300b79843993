"""Rows of tasks that are about pictures: the keys in their files, and their numbers among the pictures of a reader.

A task with the option `picture` calls `keys_of` when it reads a file; its learner calls `picture_numbers` when it frames rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cloze.corpus.readers.labelled import Format, read_rows
from cloze.decoding.reader import Reader
from cloze.errors import Parameter, TaskError


@runtime_checkable
class AboutPictures(Protocol):
    """Examples that may be about pictures; `pictures` has the key of each, None if they are about texts alone."""

    @property
    def path(self) -> str: ...

    @property
    def pictures(self) -> Sequence[str] | None: ...

    def __len__(self) -> int: ...


def keys_of(path: Path | str, lines: Sequence[int], column: str | None, format: Format | None = None) -> list[str] | None:
    """The key of the picture of each row, by its line; None without a column. Raises a `TaskError` for a row
    without one."""
    if column is None:
        return None
    columns = {column: Parameter("corpus.picture", "NAME")}
    keys = {line: key for line, (key,) in read_rows(path, columns, format=format, fault=lambda line, why: None)}
    for line in lines:
        if not keys.get(line, "").strip():
            raise TaskError(f"{path}:{line}: no picture in {column!r}; expected its key in every row.")
    return [keys[line] for line in lines]


def with_picture(columns: dict[str, Any], picture: str | None) -> dict[str, Any]:
    """The columns of a task as task.json keeps them, with that of the pictures, if there is one."""
    return columns if picture is None else {**columns, "picture": picture}


def picture_numbers(reader: Reader, examples: AboutPictures) -> list[int]:
    """The number of each example's picture among those of the reader, -1 for none. Raises a `TaskError` if the reader has
    no pictures."""
    if examples.pictures is None:
        return [-1] * len(examples)
    if reader.pictures is None:
        raise TaskError(
            f"{examples.path}: each row is about a picture, and the items of these pictures are missing.\n"
            "  Give the file with them: --items features.npz"
        )
    numbers = reader.pictures.numbers
    return [numbers[key] for key in examples.pictures]
