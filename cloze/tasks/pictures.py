"""Rows of tasks that are about pictures: the keys in their files, and their numbers among the pictures of a reader.

A task with the option `picture` calls `keys_of` when it reads a file; its learner calls `picture_numbers` when it frames rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from cloze.corpus.readers.labelled import Format, read_rows
from cloze.decoding.pictures import shown_pictures
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import Parameter, TaskError

L = TypeVar("L", bound=Checkpoint)


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


@runtime_checkable
class AboutPairs(AboutPictures, Protocol):
    """Examples that may be about two pictures each; `pictures_b` has the key of the second one."""

    @property
    def pictures_b(self) -> Sequence[str] | None: ...


def with_picture(columns: dict[str, Any], picture: str | None, picture_b: str | None = None) -> dict[str, Any]:
    """The columns of a task as task.json keeps them, with those of the pictures, if there are any."""
    keys = {"picture": picture, "picture_b": picture_b}
    return {**columns, **{name: column for name, column in keys.items() if column is not None}}


def show_pictures(loaded: L, item_files: Sequence[str], example_sets: Sequence[Any]) -> L:
    """A fine-tuned checkpoint with the pictures that sets of examples name, from files of items; without files, as it is."""
    if not item_files:
        return loaded
    keys = [
        shown_keys(examples) for examples in example_sets
        if isinstance(examples, AboutPictures) and examples.pictures is not None
    ]
    if not keys:
        raise TaskError(f"--items {item_files[0]}: {loaded.folder} was tuned on texts without pictures. Leave --items out.")
    pictures = shown_pictures(loaded, item_files, [key for set_keys in keys for key in set_keys])
    return cast(L, replace(cast(Any, loaded), pictures=pictures))


def shown_keys(examples: AboutPictures) -> list[str]:
    """The keys of all pictures that examples are about."""
    second = examples.pictures_b if isinstance(examples, AboutPairs) else None
    return [*(examples.pictures or ()), *(second or ())]


def picture_numbers(reader: Reader, examples: AboutPictures) -> list[int]:
    """The number of each example's picture among those of the reader, -1 for none. Raises a `TaskError` if the reader has
    no pictures."""
    return [-1] * len(examples) if examples.pictures is None else numbers_of(reader, examples.path, examples.pictures)


def numbers_of(reader: Reader, path: str, keys: Sequence[str] | None) -> list[int]:
    """The numbers of pictures among those of the reader, by their keys in a file. Raises a `TaskError` if the reader has no
    pictures."""
    if reader.pictures is None:
        raise TaskError(
            f"{path}: each row is about a picture, and the items of these pictures are missing.\n"
            "  Give the file with them: --items features.npz"
        )
    numbers = reader.pictures.numbers
    return [numbers[key] for key in keys or ()]
