"""What `cloze.best`, `cloze.compare` and `cloze.sweep` share: files and tasks as the command line has them, how a notebook shows
a result, and what Ctrl-C says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cloze import html_parts
from cloze.api.texts import documents, keep, paths_or_texts
from cloze.api.train import reporting
from cloze.comparison.compare import Interrupted
from cloze.corpus.readers.hub_tables import with_local_tables
from cloze.corpus.readers.report import TEXTS_FOLDER
from cloze.errors import CorpusError, Say, TaskError

Files = str | Sequence[str | Path]
#: Text files, or one token store; or texts in memory.
Texts = str | Path | Iterable[Any]


def paths_of(corpus: Texts, out: str | Path, what: str = "corpus", encoding: str | None = None) -> list[str]:
    """The paths of a corpus. Texts in memory are written into the folder `out` of the result, because every run is a process."""
    if isinstance(corpus, (list, tuple)) and not corpus:
        return []
    paths = paths_or_texts(corpus, what)
    return [write_in_memory(documents(corpus, "text", what), out, what, encoding)] if paths is None else paths


def write_in_memory(records: Iterable[Mapping[str, Any]], out: str | Path, what: str, encoding: str | None) -> str:
    """Write records from memory into the folder `out` of the result; returns the file. With an encoding it is a `CorpusError`."""
    if encoding is not None:
        raise CorpusError(f"encoding={encoding!r}: is for files, and {what} is in memory. Give files, or omit it.")
    return str(keep((Path(out) / TEXTS_FOLDER).absolute(), what, records, what))


def typed_task(name: str, files: Files) -> str:
    """A task as the command line has it."""
    words = [files] if isinstance(files, str) else [str(word) for word in files]
    if len(words) == 1:
        return with_local_tables(f"{name}={words[0]}")
    if len(words) not in (3, 4):
        raise TaskError(
            f"tasks: {name!r} has {len(words)} values. Expected the files (train, dev, test), or (type, train, dev, test)."
        )
    kind = f"{words[0]}:" if len(words) == 4 else ""
    return with_local_tables(f"{name}={kind}{','.join(words[-3:])}")


def result_html(columns: Sequence[str], rows: Sequence[Sequence[str]], remarks: Sequence[str], page: Path) -> str:
    """A result for notebooks: its table, the remarks below it, and where its page is."""
    return html_parts.grid(columns, rows) + html_parts.paragraphs(["\n".join(remarks), f"Page: {page}"])


@contextmanager
def cells_run(out: str | Path, report: Say | None) -> Iterator[Say]:
    """What is entered while cells run; gives the function that takes their lines. Ctrl-C says what it leaves."""
    with reporting(report):
        try:
            yield report or (lambda line: None)
        except Interrupted:
            raise KeyboardInterrupt(f"Finished cells are kept in {out}; the same call resumes.") from None
