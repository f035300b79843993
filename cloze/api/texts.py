"""Text in memory as files of a run, so that a run which stops resumes: what is given again must be the same."""

from __future__ import annotations

import hashlib
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from cloze.corpus.readers.report import IN_MEMORY, TEXTS_FOLDER
from cloze.errors import CheckpointError, CorpusError
from cloze.tasks.given import json_line
from cloze.tasks.in_memory import each_item, each_text
from cloze.text.encodings import reading_as

#: Endings, and the beginning of the name of a data set, by which a string is taken for the path of a text.
_FILE = re.compile(
    r"\.(txt|text|md|jsonl?|ndjson|csv|tsv|tab|parquet|store|conllu?|gz|xz|bz2|zst)$|[*/\\]$|^hf://datasets/", re.IGNORECASE
)

Paths = list[str]
T = TypeVar("T")


def reading_files(encoding: str | None) -> AbstractContextManager[None]:
    """How files are read; one that is not UTF-8 is a warning."""
    return reading_as(encoding, lambda line: warnings.warn(line.removeprefix("note: "), stacklevel=9))


def paths_or_texts(values: Any, what: str) -> Paths | None:
    """The paths that were given, None where texts were given: a string is a path, of several strings see `_is_path`.

    Strings of which some are paths and some are not are a `CorpusError`.
    """
    if isinstance(values, (str, Path)):
        return [str(values)]
    if not isinstance(values, (list, tuple)) or not values or not all(isinstance(entry, (str, Path)) for entry in values):
        return None
    kinds = {_is_path(entry) for entry in values}
    if len(kinds) == 2:
        path = next(entry for entry in values if _is_path(entry))
        text = str(next(entry for entry in values if not _is_path(entry)))
        raise CorpusError(
            f"{what}: {str(path)!r} is a path, and {text[:40]!r} is a text. Give either paths or texts.\n"
            "  A text is never taken for a path in an iterator: iter(texts)."
        )
    return [str(entry) for entry in values] if kinds == {True} else None


def _is_path(text: str | Path) -> bool:
    """A `Path`, a name that exists, or one line that ends as names of files and patterns do."""
    if isinstance(text, Path):
        return True
    if "\n" in text or len(text) > 1000:
        return False
    with suppress(OSError, ValueError):
        if text and Path(text).exists():
            return True
    return bool(_FILE.search(text))


def documents(texts: Any, column: str, what: str) -> Iterator[dict[str, str]]:
    """Texts one by one, each a document: strings, or the column `column` of rows, of a data frame or of a data set."""
    if isinstance(texts, Mapping):
        raise CorpusError(f"{what}: expected texts, got a mapping ({', '.join(map(str, texts))}). Choose one of its parts.")
    if not isinstance(texts, Iterable):
        raise CorpusError(f"{what}: expected texts or paths, got {type(texts).__name__}.")
    number = 0
    for number, entry in enumerate(each_item(texts), start=1):
        text = entry
        if isinstance(entry, Mapping):
            if column not in entry:
                raise CorpusError(f"{what}: document {number} has no {column!r}; it has: {', '.join(map(str, entry))}.\n"
                                  "  Name the column with the text: text=\"…\"")  # fmt: skip
            text = entry[column]
        if not isinstance(text, str):
            raise CorpusError(f"{what}: document {number} is {type(text).__name__}, expected a string.")
        if text.strip():
            yield {"text": text}
    if not number:
        raise CorpusError(f"{what}: no texts; expected at least one.")


@contextmanager
def kept_in(out: Path) -> Iterator[Path]:
    """Where a run keeps the text that it is given in memory. If no run begins, what was written there goes."""
    inner = out / TEXTS_FOLDER.parent
    absent = [parent for parent in (inner, *inner.parents) if not parent.exists()]
    try:
        yield out / TEXTS_FOLDER
    except Exception:
        if absent and not any(inner.rglob("run.json")):
            shutil.rmtree(inner, ignore_errors=True)
            for folder in absent[1:]:
                with suppress(OSError):  # something else is in it by now
                    folder.rmdir()
        raise


def keep(folder: Path, name: str, records: Iterable[Mapping[str, Any]], what: str) -> Path:
    """Write records as JSON lines into the folder, and return the file.

    A file that is there with the same contents stays as it is. Other contents are a `CheckpointError`: a run began with them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / IN_MEMORY.replace("*", name)
    fresh = folder / f".given-{name}.new"
    digest = hashlib.sha256()
    try:
        with fresh.open("wb") as file:
            for number, record in enumerate(records, start=1):
                line = json_line(record, number).encode("utf-8", "surrogatepass")
                digest.update(line)
                file.write(line)
        if not path.exists():
            fresh.replace(path)
        elif _digest(path) != digest.hexdigest():
            raise CheckpointError(
                f"{folder.parent.parent}: was started with other texts ({what}) than these.\n"
                "  To resume, give the same texts again. To train on others, give another out."
            )
    finally:
        fresh.unlink(missing_ok=True)
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_list(texts: str | Iterable[str]) -> tuple[list[str], bool]:
    """The texts as a list, and whether it was one string. Raises a `UserError` for anything but strings."""
    if isinstance(texts, str):
        return [texts], True
    return list(each_text(texts)), False


def for_each_text(texts: str | Iterable[str], work: Callable[[list[str]], Sequence[T]]) -> T | list[T]:
    """The results of `work`: one result for one string, a list for a list, an empty list for an empty one."""
    strings, alone = as_list(texts)
    results = list(work(strings)) if strings else []
    return results[0] if alone else results
