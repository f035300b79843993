"""Input for a task that is not a file of the task: strings, tuples, dictionaries, data frames, data sets, lines, a stream.

Every task has its own reader of files. Rows in memory are therefore written to a temporary file of JSON lines for the task to
read; errors name the number of the row.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from cloze.corpus.readers.tagged import holds_labels
from cloze.decoding.texts import gather, kind_of_file
from cloze.errors import Phrase, TaskError, UserError, spelled_by
from cloze.tasks.in_memory import each_item, plain, require_text
from cloze.tasks.kinds.token_labelling import TokenLabelling
from cloze.tasks.task import Task
from cloze.text.encodings import reading_as

UserRows = Iterable[Any]


def columns_of(task: Task) -> tuple[list[str], list[str]]:
    """The names of a task's columns with texts and pictures, and of those with answers."""
    columns = {kind: name for kind, name in task.description()["columns"].items() if name is not None}
    inputs = [kind for kind in columns if kind.startswith(("text", "picture"))]
    return [columns[kind] for kind in inputs], [name for kind, name in columns.items() if kind not in inputs]


class GivenFile(NamedTuple):
    """A file with the rows of a task: the user's, or one that cloze wrote for rows that were `in_memory`."""

    path: Path
    in_memory: bool

    def encoded(self) -> AbstractContextManager[None]:
        """Inside the block, the file is read as it is encoded, whatever the encoding of the user's files is."""
        return reading_as("utf-8") if self.in_memory else nullcontext()

    def read(self, task: Task, *, labelled: bool) -> Any:
        """The examples, as the task reads them."""
        how = task.for_files(columns=None, format=None, quoting="auto") if self.in_memory else task
        with self.encoded():
            return how.read(self.path, labelled=labelled)


@contextmanager
def given_file(task: Task, source: Any, *, labelled: bool) -> Iterator[GivenFile]:
    """A file, or rows in memory (see `as_records`) as a file. Inside the block, errors name a row by its number."""
    if isinstance(source, Path):
        yield GivenFile(source, in_memory=False)
        return
    with spelled_by(_in_memory), _as_file(as_records(source, task, labelled=labelled), ROWS) as path:
        yield GivenFile(path, in_memory=True)


@contextmanager
def given_examples(task: Task, source: Any, *, labelled: bool) -> Iterator[Any]:
    """The examples of a file, or of rows in memory (see `as_records`), as the task reads them.

    Inside the block, errors name a row by its number.
    """
    if isinstance(source, Path) and not labelled and has_texts(task, str(source)):
        with line_examples(task, gather([], str(source)), str(source)) as examples:
            yield examples
        return
    with given_file(task, source, labelled=labelled) as file:
        yield file.read(task, labelled=labelled)


def _in_memory(phrase: Phrase) -> str | None:
    """How a phrase about the columns of a file is written for rows in memory."""
    if phrase.parameter.key in ("text", "text_b", "label"):
        return "Rename the column"
    return "." if phrase.parameter.key == "columns" else None


def has_texts(task: Task, file: str) -> bool:
    """Whether a file is a .txt file with a text per line, and not with the labelled words of a tagger."""
    if kind_of_file(file) != ".txt":
        return False
    return not isinstance(task, TokenLabelling) or not holds_labels(file, task.label, task.trained)


@contextmanager
def _as_file(rows: Iterable[Mapping[str, Any] | None], name: Named) -> Iterator[Path]:
    """Rows as a temporary file; inside the block, errors about its lines are reported with the words of `name`."""
    with tempfile.TemporaryDirectory(prefix="cloze-") as folder:
        path = Path(folder) / "rows.jsonl"
        write_rows(path, rows)
        with naming_rows({path: name}):
            yield path


def as_records(source: Any, task: Task, *, labelled: bool) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries by column.

    A row may be a dictionary by column, or a tuple of the texts in the order of the task's columns, followed by the answers if
    `labelled`. For a single column it may be the string itself, or a list of words if the task reads words. Data frames, data
    sets, their columns and arrays are read by `each_item`. A row of another width, a string in place of rows, and no rows at all
    are `TaskError`s.
    """
    require_text(source)
    if isinstance(source, str) or isinstance(source, Mapping) and (task.of_words or _is_row(source)):
        raise TaskError("expected a list of rows, got one. Put it into a list.")
    texts, answers = columns_of(task)
    names = texts + answers if labelled else texts
    number = 0
    for number, row in enumerate(each_item(source), start=1):
        yield _record(row, number, names, words=len(names) == 1 and task.of_words)
    if not number:
        raise TaskError("no rows; expected at least one.")


def _is_row(mapping: Mapping[Any, Any]) -> bool:
    """Whether a mapping is a row: none of its values is a column."""
    return any(isinstance(value, (str, int, float)) or value is None for value in mapping.values())


def _record(row: Any, number: int, names: Sequence[str], *, words: bool) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return {str(name): plain(value) for name, value in row.items()}
    if isinstance(row, str) or (words and isinstance(row, (list, tuple))):
        row = (row,)
    require_text(row, f"row {number}: ")
    if not isinstance(row, (tuple, list)) or len(row) != len(names):
        had = f"{len(row)} values" if isinstance(row, (tuple, list)) else f"a {type(row).__name__}" if row is not None else "None"
        raise TaskError(
            f"row {number}: {had}, expected {' and '.join(names)}.\n"
            f"  Write ({', '.join(names)}) or {{{', '.join(f'{name!r}: …' for name in names)}}}."
        )
    return {name: plain(value) for name, value in zip(names, row, strict=True)}


@contextmanager
def line_examples(task: Task, lines: Sequence[str], source: str | None) -> Iterator[Any]:
    """Texts, one per line, as examples without answers; empty lines are skipped.

    A task with several texts separates them by tabs. `source` is where the lines come from, None for arguments.
    """
    names, _ = columns_of(task)
    rows: list[dict[str, Any] | None] = []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t") if len(names) > 1 or source is not None else [line]
        if line.strip() and len(cells) != len(names):
            where = f"text {number}" if source is None else f"{source}:{number}"
            way_out = "If the file is a table, or a word and its label a line, say so with --format tsv."
            if source is None:
                example = "\\t".join(name.upper() for name in names)
                way_out = f"Write them in one argument with a tab between, in a shell: $'{example}'. Or give a file."
            raise TaskError(
                f"{where}: {len(cells) - 1} tabs, expected {len(names) - 1}: a line has {' and '.join(names)}.\n  {way_out}"
            )
        rows.append(dict(zip(names, cells, strict=True)) if line.strip() else None)
    if not any(rows):
        raise TaskError(f"{source or 'the texts'}: empty, expected one text per line.")
    with _as_file(rows, Named("text ", "the texts") if source is None else Named(f"{source}:", source)) as path:
        yield GivenFile(path, in_memory=True).read(task, labelled=False)


@contextmanager
def stream_file(stream: BinaryIO) -> Iterator[Path]:
    """A table from a stream as a file, because readers read it more than once; inside the block, errors about its lines name
    standard input."""
    with tempfile.TemporaryDirectory(prefix="cloze-") as folder:
        path = Path(folder) / "table"
        with path.open("wb") as file:
            shutil.copyfileobj(stream, file)
        with naming_rows({path: Named("standard input:", "standard input")}):
            yield path


def write_rows(path: Path, rows: Iterable[Mapping[str, Any] | None]) -> int:
    """Write rows as JSON lines, None as an empty line; returns how many lines there are."""
    number = 0
    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows, start=1):
            try:
                file.write("\n" if row is None else json_line(row, number))
            except UnicodeEncodeError as error:
                raise TaskError(f"row {number}: a text that is no Unicode ({error.reason}).") from None
    return number


def json_line(row: Mapping[str, Any], number: int) -> str:
    """A row as a line of JSON; a `TaskError` with its number for values that JSON lacks."""
    try:
        return json.dumps(row, ensure_ascii=False) + "\n"
    except TypeError:
        kinds = ", ".join(f"{name}: {type(value).__name__}" for name, value in row.items())
        raise TaskError(f"row {number}: expected texts, numbers and lists of them, got {kinds}.") from None


class Named(NamedTuple):
    """The words for a line of a temporary file (its number follows), and for the whole file. `numbers`: those of the user's rows
    that are the lines, where these are not all of them."""

    line: str
    whole: str
    numbers: Sequence[int] | None = None

    def words_for(self, line: int) -> str:
        """What a line of the file is called."""
        return f"{self.line}{line if self.numbers is None else self.numbers[line - 1]}"


ROWS = Named("row ", "the rows")


@contextmanager
def naming_rows(names: Mapping[Path, Named]) -> Iterator[None]:
    """Inside the block, an error about a line of these files names the user's row instead."""
    try:
        yield
    except UserError as error:
        parts = [_of_rows(part, names) if isinstance(part, str) else part for part in error.args]
        if parts == [*error.args]:
            raise
        raise TaskError(*parts) from None


def _of_rows(text: str, names: Mapping[Path, Named]) -> str:
    """A piece of a message about lines of files, with the words for the user's rows."""
    for path, name in names.items():
        lines = re.escape(str(path)) + r":(\d+)"
        text = re.sub(lines, lambda match, name=name: name.words_for(int(match[1])), text)  # type: ignore[misc]
        text = text.replace(str(path), name.whole)
    return text
