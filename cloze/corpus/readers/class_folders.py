"""A folder per class as labelled text: neg/1.txt, neg/2.txt, pos/1.txt. A file is a text, its folder's name is the label."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cloze.corpus.readers.not_text import refuse_made
from cloze.corpus.readers.text_files import read_all
from cloze.errors import TaskError

_ENDINGS = (".txt", ".txt.gz", ".txt.xz")


class Filed(NamedTuple):
    """A text, its number from 1, and the name of its folder."""

    number: int
    text: str
    label: str


def read_class_folders(folder: Path | str) -> Iterator[Filed]:
    """The texts of every sub-folder, in the order of their names. Hidden files and folders are passed over.

    A class without texts, a file that is not .txt, or an empty text is a `TaskError`: it must not be skipped silently. A folder
    that cloze or transformers wrote is a `CorpusError`.
    """
    number = 0
    refuse_made(Path(folder), Path(folder).glob("*/*"))
    classes = sorted(p for p in Path(folder).iterdir() if p.is_dir() and not p.name.startswith("."))
    if not classes:
        raise TaskError(
            f"{folder}: this folder has no subfolders; expected one per class, such as neg/1.txt and pos/1.txt, or a file."
        )
    for inside in classes:
        files = sorted(p for p in inside.iterdir() if not p.name.startswith("."))
        if not files:
            raise TaskError(f"{inside}: this class has no texts; expected .txt files.")
        for file in files:
            if not file.is_file() or not file.name.endswith(_ENDINGS):
                raise TaskError(f"{file}: expected a text file (.txt) in the folder of a class. Move it elsewhere.")
            text = read_all(file).strip()
            if not text:
                raise TaskError(f"{file}: the file is empty. Delete it.")
            number += 1
            yield Filed(number, text, inside.name)
