"""Labelled data sets by their names on the hub: fine-tuning, evaluation and comparison as on files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import cloze
from cloze.cli.main import main
from cloze.corpus.readers.hub_tables import local_table
from cloze.interop.files import read_weights
from tests.hub_datasets import forget_datasets, serving_datasets
from tests.hub_server import Hub

pytest.importorskip("datasets")
Folder = Callable[[str], Path]
NAME = "hf://datasets/org/reviews"
TINY = ["--set", "training.epochs=1", "--set", "corpus.length=16", "--no-baselines"]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving_datasets(tmp_path, monkeypatch) as served:
        yield served


def write_table(split: str, count: int) -> str:
    rows = [f"{split} {'fine' if n % 2 else 'dull'} {n},{['bad', 'good'][n % 2]}\n" for n in range(count)]
    Path(f"{split}.csv").write_text("text,label\n" + "".join(rows))
    return f"{split}.csv"


def test_a_data_set_is_learned_as_the_same_table_is_and_the_run_records_the_commit(
    hub: Hub, folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tune = ["finetune", str(folder("bert")), *TINY]
    by_name = [*tune, "--train", NAME, "--dev", f"{NAME}:default/test", "--out", "by_name"]
    assert main(by_name) == 0, capsys.readouterr().err
    files = ["--train", write_table("train", 24), "--dev", write_table("test", 8), "--out", "by_file"]
    assert main([*tune, *files]) == 0, capsys.readouterr().err
    named, of_file = read_weights(Path("by_name")), read_weights(Path("by_file"))
    assert all(torch.equal(named[name], tensor) for name, tensor in of_file.items())
    record = json.loads(Path("by_name/cloze/run.json").read_text())
    commit = hub.commit("datasets/org/reviews")
    assert record["inputs"]["corpus"]["main"]["datasets"] == [f"{NAME}@{commit}:default/train"]
    assert f"{NAME}@{commit}:default/test" in record["command"]

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the rows are here
    forget_datasets()
    hub.requests.clear()
    assert main(["evaluate", "by_name", f"{NAME}:default/test"]) == 0, capsys.readouterr().err
    model = cloze.load("by_name", device="cpu")
    assert model.evaluate(f"{NAME}:default/test") == model.evaluate("test.csv")
    assert hub.requests == []


def test_rows_that_cannot_be_used_are_named_with_their_file(hub: Hub, folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    tune = ["finetune", str(folder("bert")), *TINY, "--train", NAME, "--dev", f"{NAME}:default/test", "--out", "none"]
    assert main([*tune, "--set", "corpus.label=stars"]) == 2
    error = capsys.readouterr().err
    assert f"{local_table(NAME)}: no column 'stars'; it has: text, label." in error
    assert main(["finetune", str(folder("bert")), "--train", f"{NAME}:default/dev", "--dev", NAME, "--out", "none"]) == 2
    assert "has no split 'dev'; it has: train, test." in capsys.readouterr().err and not Path("none").exists()
