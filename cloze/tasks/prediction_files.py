"""Predictions as files: JSON lines, JSON, CSV, TSV, Parquet, CoNLL, CoNLL-U and runs of TREC."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloze.atomic import require_output, whole_file
from cloze.corpus.readers.columnar import is_columnar
from cloze.corpus.readers.labelled import TextTable
from cloze.errors import MissingExtra, TaskError, propose
from cloze.tasks.kinds.conllu import GENERATOR
from cloze.tasks.task import Prediction, Task
from cloze.tasks.texts import TableTask

Row = dict[str, Any]
#: The formats of predictions by the ending of their files.
ENDINGS = {
    ".jsonl": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".conll": "conll",
    ".conllu": "conllu", ".run": "trec",
}  # fmt: skip
_OF_TASKS = ("conll", "conllu", "trec")  # which only tasks have that write them
TABLES = ("csv", "tsv", "parquet")  # a row per text, or per word


def format_of(path: Path | None, name: str | None, task: Task) -> str | None:
    """The format of a file by its ending or by `name`; None for a file without an ending and for standard output.

    A name and an ending that disagree, an unknown ending, and a format that the task's predictions do not have are `TaskError`s.
    """
    formats = [format for format in ENDINGS.values() if format not in _OF_TASKS or format in task.writes]
    if name is not None and name not in formats:
        raise TaskError(f"--as {name}: {task.name} has no predictions of this format. {propose(name, formats)}")
    ending = "" if path is None else path.suffix.lower()
    if ending and name is None and ENDINGS.get(ending) not in formats:
        endings = ", ".join(ending for ending, format in ENDINGS.items() if format in formats)
        raise TaskError(
            f"--out {path}: the predictions of {task.name} have no format with the ending {ending}. Known: {endings}.\n"
            "  Choose one of these, or name the format: --as csv"
        )
    if name is not None and ending in ENDINGS and ENDINGS[ending] != name:
        raise TaskError(f"--out {path}: a name that ends in {ending} does not fit --as {name}. Leave one of them out.")
    if name == "parquet" and path is None:
        raise TaskError("--as parquet: needs a file. Name it: --out predictions.parquet")
    return name or ENDINGS.get(ending)


def check_predictions(path: Path, *, format: str | None = None, inputs: Sequence[str] = (), overwrite: bool = False) -> None:
    """A `UserError` if predictions cannot be written to `path`; an existing file is only replaced with `overwrite`, or if it
    holds predictions as JSON lines or CoNLL-U, and never if it is one of the `inputs`."""
    if path.is_file() and any(Path(file).is_file() and path.samefile(file) for file in inputs):
        raise TaskError(f"{path}: holds the texts to predict, which would be lost. Choose another --out.")
    require_output(
        path, overwrite=overwrite, what="predictions" if format in (None, "jsonl", "conllu") else "", holds=_holds_predictions
    )


def _holds_predictions(path: Path) -> bool:
    """Whether the first line is one that `write_predictions` writes: an object that begins with the line of its text, or the
    comment that names the parser."""
    with path.open("rb") as file:
        first = file.read(64)
    return not first or first.startswith((b'{"line": ', GENERATOR.encode()))


def write_predictions(
    predictions: Sequence[Prediction], path: Path | None, format: str | None = None, *, task: Task | None = None,
    table: TextTable | None = None,
) -> None:
    """Predictions to a file, whole or not at all, or to standard output for None.

    Without a `format` they are JSON lines, or have the format of their own (trees: CoNLL-U). In CSV, TSV and Parquet the rows of
    `table`, which the `task` read, come with all their columns before the predicted ones.
    """
    if format in TABLES:
        rows = list(flat_rows(predictions))
        _write_table(rows if table is None or task is None else joined(table, rows, task), path, str(format))
        return
    _write_lines(_lines(predictions, format), path)


def write_records(records: Iterable[Mapping[str, Any]], path: Path | None) -> None:
    """JSON objects as `write_predictions` writes those of predictions."""
    _write_lines((_json(record) + "\n" for record in records), path)


def _lines(predictions: Sequence[Prediction], format: str | None) -> Iterator[str]:
    if format == "json":
        yield "[" + ",\n ".join(_json(prediction.record()) for prediction in predictions) + "]\n"
        return
    for prediction in predictions:
        yield prediction.written_as(format) or _json(prediction.record()) + "\n"


def flat_rows(predictions: Sequence[Prediction]) -> Iterator[Row]:
    """The rows of predictions in a table: one each, or one for each of its words with the number of its text (`sentence`).

    The members of an object are columns: `probabilities.LABEL`.
    """
    for number, prediction in enumerate(predictions, start=1):
        rows = prediction.word_rows()
        if rows is None:
            yield dict(_flat(prediction.record()))
        else:
            yield from ({"sentence": number, **row} for row in rows)


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def table_of(task: Task, path: str | None) -> TextTable | None:
    """The rows of an input file that is a table in which every row is an example of the task; None for others."""
    if not isinstance(task, TableTask) or path is None or Path(path).is_dir() and not is_columnar(path):
        return None
    return task.rows_of(path)


def joined(table: TextTable, rows: Sequence[Row], task: Task) -> list[Row]:
    """The rows of a table with what was predicted for each. A predicted column whose name the table has is `predicted_NAME`."""
    inputs = {"line", *task.repeated, *(kind for kind in task.description()["columns"] if kind != "label")}
    names: dict[str, str] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name not in inputs):
        names[name] = name
        while names[name] in table.columns:
            names[name] = f"predicted_{names[name]}"
    return [
        {**dict(zip(table.columns, cells, strict=True)), **{names[name]: value for name, value in row.items() if name in names}}
        for cells, row in zip(table.rows, rows, strict=True)
    ]


def _write_table(rows: Sequence[Row], path: Path | None, format: str) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if format == "parquet":
        assert path is not None  # see `format_of`
        _write_parquet({name: [row.get(name) for row in rows] for name in columns}, path)
        return
    writer = csv.writer(_Lines(), delimiter="," if format == "csv" else "\t", lineterminator="\r\n")
    cells = ([_cell(row.get(name)) for name in columns] for row in rows)
    _write_lines((writer.writerow(row) for row in (columns, *cells)), path)  # `writerow` gives what `write` does


class _Lines:
    """What a csv.writer writes to so that `writerow` returns the row. Its line end is CR LF, so that it quotes both in cells."""

    def write(self, line: str) -> str:
        """The row, ending in a line feed."""
        return line.removesuffix("\r\n") + "\n"


def _cell(value: Any) -> Any:
    """A value in CSV and TSV: lists are JSON."""
    return _json(value) if isinstance(value, (list, tuple)) else value


def _write_parquet(columns: Mapping[str, list[Any]], path: Path) -> None:
    try:
        from pyarrow import parquet, table
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", f"--out {path}") from None
    with whole_file(path) as stage:
        parquet.write_table(table(dict(columns)), stage)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_lines(lines: Iterable[str], path: Path | None) -> None:
    if path is None:
        sys.stdout.writelines(lines)
        return
    with whole_file(path) as stage, stage.open("w", encoding="utf-8", newline="") as file:
        file.writelines(lines)
