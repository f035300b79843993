"""The verbs of tasks on Parquet: what they say of the same rows in a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cloze.checkpoint.inputs import store_digest
from cloze.cli.main import main
from cloze.corpus.readers.labelled import read_table
from cloze.corpus.stores.store import Store

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def files(tables: Path, tmp_path: Path) -> Path:
    """A folder with the tables as Parquet, in row groups of 20."""
    for name in ("train", "dev"):
        table = read_table(tables / f"{name}.tsv")
        columns = {column: list(cells) for column, cells in zip(table.columns, zip(*table.rows, strict=True), strict=True)}
        parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=20)
    return tmp_path


def test_a_store_of_parquet_is_that_of_the_table_but_for_the_lines(
    folder: Callable[[str], Path], tables: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--task", "sentence_classification", "--tokenizer", str(folder("bert")), "--out"]
    for source, out in ((files / "train.parquet", "columnar"), (tables / "train.tsv", "table")):
        assert main(["corpus", "build", str(source), *command, str(files / out)]) == 0
    one, two = (Store.open(files / name) for name in ("columnar", "table"))
    assert store_digest(one) != store_digest(two)  # a header is a line of the table
    for name in ("tokens.bin", "documents.bin", "records/label.bin"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()
    capsys.readouterr()
    finetune = ["finetune", str(folder("bert")), "--out", str(files / "out"), "--show"]
    shown = []
    for place, ending in ((files, "parquet"), (tables, "tsv")):
        assert main([*finetune, "--train", str(place / f"train.{ending}"), "--dev", str(place / f"dev.{ending}")]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def test_parquet_is_checked_measured_and_answered(
    tuned: Callable[..., Path], tables: Path, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dev, train = (str(files / f"{name}.parquet") for name in ("dev", "train"))
    assert main(["corpus", "check", dev, "--task", "sentence_classification", "--against", train]) == 0
    assert f"{dev}: 16 usable rows" in capsys.readouterr().out
    measured, predicted = [], []
    for file in (dev, str(tables / "dev.tsv")):
        assert main(["evaluate", str(tuned()), file, "--json"]) == 0
        measured.append(json.loads(capsys.readouterr().out)[file])
        assert main(["predict", str(tuned()), file]) == 0
        predicted.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert measured[0] == measured[1]
    assert [one["line"] for one in predicted[0]] == list(range(1, 17))
    assert [one | {"line": one["line"] + 1} for one in predicted[0]] == predicted[1]
