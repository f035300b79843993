"""Labelled text of the Hugging Face Hub: a split of a data set as a file of this machine.

Labelled files are read many times, by many processes and by their names, so a split is copied once into
`$HF_HOME/cloze/datasets/ORG/NAME/COMMIT/CONFIG/SPLIT.parquet`, in constant memory. A data set that declares no columns becomes
JSON lines. Columns that hold bytes, such as pictures, are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from cloze.atomic import whole_file
from cloze.corpus.readers.columnar import holds_bytes
from cloze.corpus.readers.hub_datasets import DatasetName, DatasetSplit, is_dataset, split_of, understood
from cloze.errors import CorpusError

_WITHIN = re.compile(r"hf:/{1,2}datasets/[^\s,=]+")
_LOCAL = re.compile(
    r"[^\s,=:]*/cloze/datasets/(?P<repository>[\w.-]+/[\w.-]+)/(?P<commit>[0-9a-f]{40})/(?P<config>[^/,]+)/(?P<split>[^/,]+)"
    r"\.(parquet|jsonl)"
)


def with_local_tables(option: str) -> str:
    """An option that names labelled files, such as `NAME=TRAIN,DEV`, with local files in place of names of data sets."""
    return _WITHIN.sub(lambda match: str(local_table(match[0])) if is_dataset(match[0]) else match[0], option)


def with_dataset_names(option: str) -> str:
    """The reverse: the names of data sets, with their commits, in place of local files."""

    def name_of(match: re.Match[str]) -> str:
        return str(DatasetName(match["repository"], match["commit"], unquote(match["config"]), unquote(match["split"])))

    return _LOCAL.sub(name_of, option)


def local_tables(paths: Iterable[str | Path]) -> list[str]:
    """Paths of labelled files, with local files in place of names of data sets."""
    return [str(local_table(str(path))) for path in paths]


def local_table(path: str) -> Path:
    """The file with the rows of a split, copied from the hub if it is not there; any other path unchanged.

    Raises:
        CorpusError: As `split_of`. If the hub cannot be asked, the split that had this name before is used.
    """
    if not is_dataset(path):
        return Path(path)
    from huggingface_hub import constants

    root = Path(constants.HF_HOME) / "cloze" / "datasets"
    latest = root / "latest" / f"{quote(str(DatasetName.parse(path)), safe='')}.txt"  # the file that had this name last
    try:
        split = split_of(path)
    except CorpusError:
        if latest.is_file() and (file := root / latest.read_text(encoding="utf-8")).is_file():
            return file
        raise
    name = split.name
    ending = "jsonl" if split.features is None else "parquet"
    file = root / name.repository / name.revision / quote(name.config, safe="") / f"{quote(name.split, safe='')}.{ending}"
    with understood(name):
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(file) as stage:
                (_write_lines if split.features is None else _write_parquet)(split, stage)
        latest.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(latest) as stage:
            stage.write_text(file.relative_to(root).as_posix(), encoding="utf-8")
    return file


def _write_parquet(split: DatasetSplit, file: Path) -> None:
    from pyarrow import parquet

    features = split.features.copy()
    for field in split.features.arrow_schema:
        if holds_bytes(field.type):
            del features[field.name]
    schema = features.arrow_schema  # with the names of classes
    with parquet.ParquetWriter(file, schema) as writer:
        for table in split.tables(columns=list(features)):
            writer.write_table(table.select(list(features)).cast(schema))


def _write_lines(split: DatasetSplit, file: Path) -> None:
    with file.open("w", encoding="utf-8") as stream:
        for table in split.tables():
            names = [field.name for field in table.schema if not holds_bytes(field.type)]
            stream.writelines(_line(row) for row in table.select(names).to_pylist())


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"
